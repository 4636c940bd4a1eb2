// The worker's side: sends requests to all servers at once, and waits for their answers.
#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/ranks.h"
#include "paceline/ps/transports/ranks_message.h"
#include "paceline/ps/transports/remote_worker.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr Nanoseconds kLeaving = std::chrono::seconds(10);  // for a server to learn that a worker leaves

/// One server, as a worker sees it.
struct Link {
  int rank = 0;
  Nanoseconds wait{0};  // how long a pull may wait there for other workers
  Envelope asked = {}, answered = {};
};

class RankClient final : public RemoteWorker {
 public:
  RankClient(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options);
  ~RankClient() override;

 private:
  std::vector<std::string> ask(std::span<const Question> questions) override { return ask_within(deadline_, questions); }
  std::vector<std::string> ask_within(Nanoseconds deadline, std::span<const Question> questions);

  std::shared_ptr<comm::Communicator> ranks_;
  Nanoseconds deadline_;
  std::vector<Link> links_;
};

RankClient::RankClient(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options)
    : RemoteWorker(layout), ranks_(cluster.ranks), deadline_(options.deadline) {
  for (int rank = 0; rank < static_cast<int>(cluster.servers.size()); ++rank)
    if (rank != ranks_->rank()) links_.push_back({.rank = rank});
  const Introduction introduction(options.worker, layout, options);
  std::vector<wire::Joined> places;
  const std::vector<std::string> answers = ask(std::vector(links_.size(), introduction.question()));
  for (std::size_t i = 0; i < links_.size(); ++i) {
    places.push_back(wire::unpack<wire::Joined>(answers[i]));
    links_[i].wait = Nanoseconds(places[i].wait);
  }
  begin(options.worker, std::move(places), options.compression);
}

RankClient::~RankClient() {
  if (std::uncaught_exceptions() > 0) return;  // the engine informs the ranks that wait for this one
  try {
    ask_within(kLeaving, std::vector(links_.size(), Question{wire::pack(Verb::leave, wire::Nothing{})}));
  } catch (const std::exception& error) {
    log::warning("{}", error.what());
  }
}

std::vector<std::string> RankClient::ask_within(Nanoseconds deadline, std::span<const Question> questions) {
  std::vector<std::string> answers, failures(questions.size());
  Passages sends, heads, payloads;
  const Link* at = links_.data();  // the server that an error concerns
  try {
    for (std::size_t i = 0; i < questions.size(); ++i) {
      Link& link = links_[i];
      at = &link;
      const comm::Options options{.deadline = deadline + link.wait};
      link.asked.put(questions[i].head);
      sends.push_back(ranks_->start(comm::send(link.asked.buffer(), link.rank, kAsk, options)));
      if (!questions[i].payload.empty())
        sends.push_back(ranks_->start(comm::send(buffer_of(questions[i].payload), link.rank, kAskPayload, options)));
      heads.push_back(ranks_->start(comm::receive(link.answered.buffer(), link.rank, kAnswer, options)));
    }
    for (std::size_t i = 0; i < questions.size(); ++i) {
      at = &links_[i];
      heads[i].wait();
      answers.push_back(at->answered.get());
      const wire::Head told = questions[i].check(answers[i], fmt::format("server {}", at->rank));
      std::span<std::byte> into = questions[i].into;
      if (told.verb == Verb::error) {
        failures[i].resize(static_cast<std::size_t>(told.payload));
        into = std::as_writable_bytes(std::span(failures[i]));
      }
      if (told.payload > 0)
        payloads.push_back(ranks_->start(comm::receive(buffer_of(into), at->rank, kAnswerPayload, {.deadline = deadline})));
    }
    for (const comm::Work& work : payloads) work.wait();
    for (const comm::Work& work : sends) work.wait();
    for (std::size_t i = 0; i < questions.size(); ++i)
      if (wire::unpack_head(answers[i]).verb == Verb::error) wire::raise(answers[i], failures[i]);
  } catch (const PeerError& error) {
    if (answers.size() == questions.size()) throw;  // the server's own error
    throw PeerError(at->rank, std::string(wire::name(questions[0].verb())), error.step(),
                    fmt::format("server {} did not answer rank {}: {}", at->rank, ranks_->rank(), error.what()));
  }
  return answers;
}

}  // namespace

std::unique_ptr<RemoteClient> connect_ranks(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options) {
  return std::make_unique<RankClient>(cluster, layout, options);
}

}  // namespace paceline::ps

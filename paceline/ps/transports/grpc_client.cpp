// The worker's side: one link to each server, all used concurrently, and a pulse thread that sends heartbeats while the worker computes.
#if PACELINE_WITH_GRPC

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "paceline/base/entropy.h"
#include "paceline/base/error.h"
#include "paceline/ps/transports/grpc_link.h"

namespace paceline::ps {
namespace {

constexpr Nanoseconds kTick = std::chrono::milliseconds(200);  // of the pulse
constexpr Nanoseconds kGoodbye = std::chrono::seconds(2);      // for servers to see that a worker leaves

class GrpcWorker final : public RemoteWorker {
 public:
  GrpcWorker(const std::vector<std::string>& addresses, const ArenaLayout& layout, const JoinOptions& options);
  ~GrpcWorker() override;

 private:
  std::vector<std::string> ask(std::span<const Question> questions) override;
  void pulse(const std::stop_token& stop);

  Identity identity_;
  std::vector<std::unique_ptr<Link>> links_;
  std::jthread pulse_;
};

std::uint64_t random_token() {
  std::uint64_t token = 0;
  std::memcpy(&token, random_bytes(sizeof(token)).data(), sizeof(token));
  return token;
}

GrpcWorker::GrpcWorker(const std::vector<std::string>& addresses, const ArenaLayout& layout, const JoinOptions& options)
    : RemoteWorker(layout), identity_{.options = options, .token = random_token(), .layout = layout, .worker = options.worker} {
  if (addresses.empty()) throw ConfigError("a worker needs the address of at least one server");
  for (const std::string& address : addresses)
    links_.push_back(std::make_unique<Link>(static_cast<int>(links_.size()), address, identity_));
  pulse_ = std::jthread([this](const std::stop_token& stop) { pulse(stop); });  // the pulse also ends a join that is never answered
  std::vector<wire::Joined> places;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const std::string& address = addresses[i];
    const wire::Joined& joined = places.emplace_back(links_[i]->connect());
    if (joined.begin != end || joined.end < end)
      throw ConfigError(
          fmt::format("{} has the elements {} to {} of the model, but {} should come next; list the servers' addresses in order", address,
                      joined.begin, joined.end, end));
    end = joined.end;
    identity_.worker = static_cast<int>(joined.worker);  // assigned by the first server; the others are asked for the same number
  }
  if (end != layout.length)
    throw ConfigError(
        fmt::format("the servers have only {} of the model's {} elements; list the addresses of all servers", end, layout.length));
  begin(identity_.worker, std::move(places), options.compression);
}

GrpcWorker::~GrpcWorker() {
  for (const auto& link : links_) link->close(kGoodbye);  // the pulse ends a close that hangs
}

std::vector<std::string> GrpcWorker::ask(std::span<const Question> questions) {
  std::vector<std::string> answers(questions.size());
  at_once(questions.size(), [&](std::size_t i) { answers[i] = links_[i]->ask(questions[i]); });
  return answers;
}

void GrpcWorker::pulse(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    never.wait_for(lock, stop, kTick, [] { return false; });
    for (const auto& link : links_) link->tend();
  }
}

}  // namespace

std::unique_ptr<RemoteClient> connect_grpc(const std::vector<std::string>& addresses, const ArenaLayout& layout,
                                           const JoinOptions& options) {
  return std::make_unique<GrpcWorker>(addresses, layout, options);
}

}  // namespace paceline::ps

#endif

// The worker's side: one link to each server, all of them used at the same time, and a pulse that beats while the worker computes.
#if PACELINE_WITH_GRPC

#include <fmt/format.h>

#include <random>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/ps/transports/grpc_link.h"
#include "paceline/ps/transports/parcels.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr Nanoseconds kTick = std::chrono::milliseconds(200);    // of the pulse
constexpr Nanoseconds kAskAgain = std::chrono::milliseconds(5);  // for work, where there was none
constexpr Nanoseconds kGoodbye = std::chrono::seconds(2);        // for servers to see that a worker leaves

class GrpcWorker final : public RemoteClient {
 public:
  GrpcWorker(const std::vector<std::string>& addresses, const Layout& layout, const JoinOptions& options);
  ~GrpcWorker() override;

  int worker() const override { return identity_.worker; }
  void pull(float* into, float rate) override;
  Advice report(const Report& report, const float* statistics) override;
  Verdict push(float* gradient, const Push& push) override;
  bool in_vain() override;
  std::optional<Task> next() override;
  void done(const Task& task, double loss_sum, double right, std::int64_t targets) override;

 private:
  /// Calls body(i) for every server at the same time; throws what the first of them threw.
  template <class Body>
  void for_each_server(const Body& body);
  std::span<float> range(float* arena, std::size_t server) const;
  void pulse(const std::stop_token& stop);

  Layout layout_;
  Identity identity_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<PushEncoder> encoders_;  // by server; none: pushes go as they are
  double epoch_ = 0;                   // of the last task
  std::jthread pulse_;
};

std::uint64_t random_token() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

GrpcWorker::GrpcWorker(const std::vector<std::string>& addresses, const Layout& layout, const JoinOptions& options)
    : layout_(layout), identity_{.options = options, .token = random_token(), .layout = serialise(layout), .worker = options.worker} {
  if (addresses.empty()) throw ConfigError("a worker needs the address of at least one server");
  std::int64_t end = 0;
  for (const std::string& address : addresses) {
    auto& link = links_.emplace_back(std::make_unique<Link>(static_cast<int>(links_.size()), address, identity_));
    const wire::Joined joined = link->connect();
    if (joined.begin != end || joined.end < end)
      throw ConfigError(
          fmt::format("{} has the elements {} to {} of the model, and {} should come next; give the servers' addresses in order", address,
                      joined.begin, joined.end, end));
    end = joined.end;
    identity_.worker = static_cast<int>(joined.worker);  // by the first server; the others are asked for the same number
  }
  if (end != layout.length)
    throw ConfigError(fmt::format("the servers have {} of the model's {} elements; give the addresses of all of them", end, layout.length));
  if (!options.compression.name.empty())
    for (const auto& link : links_) {
      const wire::Joined& place = link->place();
      encoders_.emplace_back(options.compression, parts_of(layout).slice(place.begin, place.end), identity_.worker, place.begin);
    }
  pulse_ = std::jthread([this](const std::stop_token& stop) { pulse(stop); });
}

GrpcWorker::~GrpcWorker() {
  for (const auto& link : links_) link->close(kGoodbye);  // the pulse ends one that hangs
}

template <class Body>
void GrpcWorker::for_each_server(const Body& body) {
  std::vector<std::exception_ptr> errors(links_.size());
  const auto guarded = [&](std::size_t i) {
    try {
      body(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // a thread costs little beside a transfer
    for (std::size_t i = 1; i < links_.size(); ++i) others.emplace_back(guarded, i);
    guarded(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::span<float> GrpcWorker::range(float* arena, std::size_t server) const {
  const wire::Joined& place = links_[server]->place();
  return {arena + place.begin, static_cast<std::size_t>(place.end - place.begin)};
}

void GrpcWorker::pull(float* into, float rate) {
  std::vector<float> unwanted(into ? 0 : static_cast<std::size_t>(layout_.length));  // servers always send them
  if (!into) into = unwanted.data();
  for_each_server([&](std::size_t i) {
    const auto place = std::as_writable_bytes(range(into, i));
    const auto answer = links_[i]->ask(wire::pack(Verb::pull, wire::PullRequest{rate}), {}, place, Link::Lost::again);
    if (wire::unpack_head(*answer).payload != std::ssize(place))
      throw DataError("the server", "it sent fewer parameters than its range has");
    links_[i]->saw(wire::unpack<wire::Pulled>(*answer).version);
  });
}

Advice GrpcWorker::report(const Report& report, const float* statistics) {
  const auto payload = std::as_bytes(std::span(statistics, statistics ? static_cast<std::size_t>(layout_.statistics) : 0));
  const auto head = wire::pack(Verb::report, report, std::ssize(payload));
  return wire::unpack<Advice>(*links_[0]->ask(head, payload, {}, Link::Lost::again));
}

Verdict GrpcWorker::push(float* gradient, const Push& push) {
  Verdict first{.fate = Verdict::Fate::dropped, .gathered = 0};
  std::vector<std::span<float>> ranges;
  for (std::size_t i = 0; i < links_.size(); ++i) ranges.push_back(range(gradient, i));
  const Parcels parcels = parcels_of(ranges, encoders_, epoch_, [&](const auto& act) { for_each_server(act); });
  for_each_server([&](std::size_t i) {
    const auto payload = parcels.payloads[i];
    const auto head = wire::pack(Verb::push, wire::PushRequest{push, parcels.kind}, std::ssize(payload));
    // Of a server that was lost nobody knows whether it used the gradient; sent again, it might be applied twice.
    const auto answer = links_[i]->ask(head, payload, std::as_writable_bytes(ranges[i]), Link::Lost::give_up);
    if (!answer || i > 0) return;
    const auto pushed = wire::unpack<wire::Pushed>(*answer);
    first = {static_cast<Verdict::Fate>(pushed.fate), static_cast<int>(pushed.gathered)};
  });
  return first;
}

bool GrpcWorker::in_vain() {
  const auto answer = links_[0]->ask(wire::pack(Verb::in_vain, wire::Nothing{}), {}, {}, Link::Lost::give_up);
  return !answer || wire::unpack<wire::Answer>(*answer).yes;  // a server that was lost does not know of the pull any more
}

std::optional<Task> GrpcWorker::next() {
  for (;;) {
    const auto answer = wire::unpack<wire::Next>(*links_[0]->ask(wire::pack(Verb::next, wire::Nothing{}), {}, {}, Link::Lost::again));
    if (answer.kind == wire::Next::finished) return std::nullopt;
    if (answer.kind == wire::Next::task) {
      epoch_ = static_cast<double>(answer.what.epoch);
      return answer.what;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

void GrpcWorker::done(const Task& task, double loss_sum, double right, std::int64_t targets) {
  links_[0]->ask(wire::pack(Verb::done, wire::Done{task, loss_sum, right, targets}), {}, {}, Link::Lost::give_up);
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

std::unique_ptr<RemoteClient> connect_grpc(const std::vector<std::string>& addresses, const Layout& layout, const JoinOptions& options) {
  return std::make_unique<GrpcWorker>(addresses, layout, options);
}

}  // namespace paceline::ps

#endif

// Pulls and pushes of ResNet-18's parameters (11.2 million floats, 45 MB) to a parameter server: in the workers' own process, and over gRPC
// on loopback. The server's update is plain sgd, with every gradient as it comes (asp: ASGD) or with the mean of all of them (bsp: SSGD).
//
// All workers pull at the same time, then all push; a round lasts until the last one is done, and GB/s are of parameters for each worker.
// An in-process pull is one copy, so it is held against a plain copy of the same bytes by as many threads, in the same rounds (it may win:
// a pull is divided among all cores). A push reads the gradient twice (is it finite? the update) and reads and writes the parameters once,
// one worker after the other; with bsp the server copies every gradient, and the last push of a round adds them up. Medians of the rounds
// count.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <future>
#include <mutex>

#include <fmt/format.h>

#include "benchmark.h"
#include "paceline/base/entropy.h"
#include "paceline/base/text.h"
#include "paceline/ps/transports/grpc.h"

namespace paceline::bench {
namespace {

constexpr std::int64_t kElements = 11'200'000;
constexpr double kGigabytes = kElements * sizeof(float) / 1e9;

ps::ArenaLayout model() { return {.entries = {{"parameters", {kElements}, 0, kElements, true}}, .length = kElements}; }

/// Hosts of an arena in so many ranges.
struct ConcurrentServers {
  ConcurrentServers(int servers, int workers, const std::string& consistency) {
    ps::PsConfig config;
    config.consistency = consistency;
    optim::OptimConfig optim;
    optim.momentum = 0;
    const auto segments = ps::segments_of(model());
    cuts = ps::cut_ranges(segments, kElements, servers, true);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const ps::Server::Setup setup{
          .segments = segments, .length = kElements, .begin = cuts[i], .end = cuts[i + 1], .workers = workers, .place = {}};
      all.push_back(std::make_shared<ps::ConcurrentServer>(std::make_unique<ps::Server>(config, optim, setup),
                                                           ps::ConcurrentServer::Limits{}, clock));
    }
  }
  SteadyClock clock;
  std::vector<std::int64_t> cuts;
  std::vector<std::shared_ptr<ps::ConcurrentServer>> all;
};

/// From when the first worker began to when the last one was done.
struct Span {
  Nanoseconds began = Nanoseconds::max(), ended{0};
};

struct RoundTimes {
  explicit RoundTimes(int rounds) : pull(static_cast<std::size_t>(rounds)), push(pull), copy(pull) {}
  std::vector<Span> pull, push, copy;  // by round
};

double median_of(const std::vector<Span>& spans) {
  std::vector<double> all;
  all.reserve(spans.size());
  for (const Span& span : spans) all.push_back(seconds(span.ended - span.began));
  return median(all);
}

RoundTimes measure(int workers, int rounds, const std::function<std::unique_ptr<ps::Client>(int worker)>& connect) {
  RoundTimes times(rounds);
  std::mutex mutex;
  std::barrier together(workers);
  const auto work = [&](int worker) {
    const auto client = connect(worker);
    std::vector<float> parameters(kElements), gradient(kElements, 1e-3f);
    const SteadyClock clock;
    const auto timed = [&](std::vector<Span>& spans, int round, const auto& body) {
      together.arrive_and_wait();
      const Nanoseconds began = clock.now();
      body();
      const Nanoseconds ended = clock.now();
      if (round < 0) return;  // warms up
      const std::scoped_lock lock(mutex);
      Span& span = spans[static_cast<std::size_t>(round)];
      span = {std::min(span.began, began), std::max(span.ended, ended)};
    };
    for (int round = -1; round < rounds; ++round) {
      timed(times.copy, round, [&] { std::memcpy(parameters.data(), gradient.data(), kElements * sizeof(float)); });
      timed(times.pull, round, [&] { client->pull(parameters.data(), 0.1f); });
      timed(times.push, round, [&] { client->push(gradient.data(), {.rate = 0.1f}); });
    }
  };
  std::vector<std::future<void>> all;
  all.reserve(static_cast<std::size_t>(workers));
  for (int worker = 0; worker < workers; ++worker)
    all.push_back(std::async(std::launch::async, [&, worker] {
      try {
        work(worker);
      } catch (...) {
        together.arrive_and_drop();  // the others are not to wait for this one
        throw;
      }
    }));
  for (std::future<void>& each : all) each.get();
  return times;
}

Row row_of(const std::string& transport, const std::string& consistency, int servers, int workers, const RoundTimes& times) {
  const double copy = median_of(times.copy), pull = median_of(times.pull), push = median_of(times.push);
  return {{"transport", transport},
          {"consistency", consistency},
          {"servers", servers},
          {"workers", workers},
          {"pull_gb_per_s", kGigabytes / pull},
          {"push_gb_per_s", kGigabytes / push},
          {"copy_gb_per_s", kGigabytes / copy},
          {"pull_share_of_copy", copy / pull},
          {"pull_ms", pull * 1e3},
          {"push_ms", push * 1e3}};
}

Row in_process(const std::string& consistency, int workers, int rounds) {
  const ConcurrentServers concurrents(1, workers, consistency);
  return row_of("in_process", consistency, 1, workers, measure(workers, rounds, [&](int worker) {
                  return ps::make_in_process_client(concurrents.all, concurrents.cuts, worker);
                }));
}

#if PACELINE_WITH_GRPC
Row over_grpc(const std::string& consistency, int servers, int workers, int rounds) {
  const ConcurrentServers concurrents(servers, workers, consistency);
  const std::string secret = hex(random_bytes(kKeyBytes));
  std::vector<std::unique_ptr<ps::GrpcServer>> fleet;
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < concurrents.all.size(); ++i) {
    fleet.push_back(std::make_unique<ps::GrpcServer>(
        concurrents.all[i], model(),
        ps::ServiceOptions{.begin = concurrents.cuts[i], .end = concurrents.cuts[i + 1], .security = {.secret = secret}}));
    addresses.push_back(fleet.back()->address());
  }
  return row_of("grpc", consistency, servers, workers, measure(workers, rounds, [&](int worker) {
                  return ps::connect_grpc(addresses, model(), {.worker = worker, .security = {.secret = secret}});
                }));
}
#endif

}  // namespace

std::vector<Row> bench_ps(const Options& options, const Say& say) {
  std::vector<Row> rows;
  for (const std::string consistency : {"asp", "bsp"})
    for (const int workers : {1, 2, 4, 8}) {
      const std::string who = fmt::format("{}, {}", consistency, plural(workers, "worker"));
      say(who + " in process");
      rows.push_back(in_process(consistency, workers, options.rounds));
#if PACELINE_WITH_GRPC
      for (const int servers : {1, 2}) {
        say(who + " over gRPC, " + plural(servers, "server"));
        rows.push_back(over_grpc(consistency, servers, workers, options.rounds));
      }
#endif
    }
  return rows;
}

}  // namespace paceline::bench

// A server with a journal that tests may kill.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "paceline/ps/concurrent_server.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {

inline constexpr std::int64_t kSmall = 40, kNorms = 4;

struct ReplicaKind {
  std::string rule = "asgd", consistency = "asp";
  int workers = 2;
};

inline std::unique_ptr<Server> make_small_server(const ReplicaKind& kind) {
  PsConfig config;
  config.rule = kind.rule, config.consistency = kind.consistency, config.bound = 1, config.group = kind.consistency == "k_sync" ? 1 : 0;
  config.hidden = 4;
  Server::Setup setup;
  setup.segments = {{0, kSmall}};
  setup.length = setup.end = kSmall, setup.statistics = kNorms, setup.workers = kind.workers;
  return std::make_unique<Server>(config, optim::OptimConfig{.momentum = 0, .weight_decay = 0}, setup);
}

/// A server with a journal, which can be killed, and is then started again from it, as ps.replica=true has it.
class Replica {
 public:
  explicit Replica(ReplicaKind kind, const std::filesystem::path& stem) : kind_(std::move(kind)), stem_(stem) {
    start();
    for (int worker = 0; worker < kind_.workers; ++worker) concurrent_->join(worker);
  }

  void kill() { start(), concurrent_->begin_again(); }
  ConcurrentServer& concurrent() { return *concurrent_; }

  Admission push(int worker, std::int64_t number, float value = 1) {
    std::vector<float> gradient(kSmall, value);
    return push(worker, number, gradient);
  }
  Admission push(int worker, std::int64_t number, std::vector<float>& gradient) {
    return concurrent_->push(worker, gradient.data(), {.rate = 1, .loss = 1, .number = number});
  }
  void pull(int worker) {
    std::vector<float> into(kSmall);
    concurrent_->pull(worker, into.data(), 1);
  }
  Advice report(int worker, std::int64_t number, double loss) {
    const std::vector<float> statistics(kNorms, static_cast<float>(loss));
    return concurrent_->report(worker, {.loss = loss, .t_comm_s = 1, .t_comp_s = 1, .number = number}, statistics.data());
  }
  std::int64_t version() {
    return concurrent_->with([](Server& server) { return server.version(); });
  }
  std::int64_t gradients() {
    return concurrent_->with([](Server& server) {
      std::int64_t all = 0;
      for (const auto& [staleness, count] : server.staleness()) all += count;
      return all;
    });
  }
  std::vector<float> parameters() {
    return concurrent_->with([](Server& server) { return std::vector<float>(server.parameters(), server.parameters() + kSmall); });
  }
  std::vector<float> statistics() {
    return concurrent_->with([](Server& server) { return std::vector<float>(server.statistics(), server.statistics() + kNorms); });
  }

 private:
  void start() {
    concurrent_.reset();
    auto server = make_small_server(kind_);
    Journals journals(stem_);
    journals.replay(*server, 0);
    concurrent_ = std::make_unique<ConcurrentServer>(std::move(server), ConcurrentServer::Limits{.wait = std::chrono::milliseconds(40)},
                                                     steady_clock());
    concurrent_->write_to(journals.next());
  }

  ReplicaKind kind_;
  std::filesystem::path stem_;
  std::unique_ptr<ConcurrentServer> concurrent_;
};

}  // namespace paceline::ps

// Stale synchronous parallel (Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
//
// A worker's clock counts the iterations that it has finished. Invariant: a worker that pulls has clock − (smallest clock of the present
// ones) ≤ bound; after its push the difference may be bound + 1, and it waits. Every gradient is applied at once. With bound 0 no worker
// begins iteration c+1 before all have finished c. The slowest may always pull, so no wait is endless. A worker that joins starts with the
// slowest: it neither holds the others back more than that one does, nor runs ahead.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "paceline/ps/consistency.h"

namespace paceline::ps {
namespace {

class Ssp final : public Consistency {
 public:
  Ssp(std::int64_t bound, int workers) : bound_(bound) {
    for (int worker = 0; worker < workers; ++worker) joined(worker);
  }

  bool may_pull(int worker) const override {
    const auto it = workers_.find(worker);
    return it != workers_.end() && !it->second.computing && it->second.clock - slowest_ <= bound_;
  }

  void pulled(int worker) override {
    ensure(may_pull(worker), "a worker pulled that may not");
    workers_[worker].computing = true;
  }

  Admission pushed(int worker, double) override {
    const auto it = workers_.find(worker);
    if (it == workers_.end() || !it->second.computing) return {Admission::Fate::dropped, 0};
    it->second.computing = false;
    ++it->second.clock;
    find_slowest();
    return {Admission::Fate::applied, 1};
  }

  void refused(int worker) override {
    if (const auto it = workers_.find(worker); it != workers_.end()) it->second.computing = false;
  }

  void joined(int worker) override { workers_[worker] = {.clock = slowest_, .computing = false}; }

  Admission left(int worker) override {
    workers_.erase(worker);
    find_slowest();
    return {Admission::Fate::applied, 0};
  }

  std::vector<int> members() const override {
    std::vector<int> members;
    for (const auto& [number, worker] : workers_) members.push_back(number);
    return members;
  }

  // [(worker, clock, computing)…]
  std::vector<std::int64_t> save() const override {
    std::vector<std::int64_t> state;
    for (const auto& [number, worker] : workers_) state.insert(state.end(), {number, worker.clock, worker.computing});
    return state;
  }

  void load(std::span<const std::int64_t> state) override {
    check_state(state.size() % 3 == 0);
    std::map<int, Worker> workers;
    for (auto rest = state; !rest.empty(); rest = rest.subspan(3)) {
      check_state(std::in_range<int>(rest[0]) && rest[1] >= 0 && (rest[2] == 0 || rest[2] == 1));
      workers[static_cast<int>(rest[0])] = {.clock = rest[1], .computing = rest[2] == 1};
    }
    workers_ = std::move(workers);
    find_slowest();
  }

 private:
  struct Worker {
    std::int64_t clock = 0;
    bool computing = false;
  };

  void find_slowest() {
    const auto slowest = std::ranges::min_element(workers_, {}, [](const auto& entry) { return entry.second.clock; });
    if (slowest != workers_.end()) slowest_ = slowest->second.clock;
  }

  std::int64_t bound_;
  std::map<int, Worker> workers_;
  std::int64_t slowest_ = 0;  // the smallest clock of the present workers; if there are none, of those that were there last
};

}  // namespace

std::unique_ptr<Consistency> ssp(const ConsistencyConfig& config, int workers) {
  if (config.bound < 0)
    throw ConfigError(fmt::format("ps.staleness={} must be at least 0; 0 is lock-step, 2 to 5 are usual", config.bound));
  return std::make_unique<Ssp>(config.bound, workers);
}

}  // namespace paceline::ps

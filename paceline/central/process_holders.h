// Who holds the state of a run whose servers and workers are processes, as server 0 sees them: the other servers, which it asks as their
// observer, and, if workers keep something for themselves, the workers that are connected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/central/worker_orders.h"
#include "paceline/ps/transports/service.h"
#include "paceline/step/holders.h"
#include "paceline/step/state.h"

namespace paceline::central {

class ProcessHolders final : public step::Holders {
 public:
  /// What server 0 gives it. All of it outlives the holders.
  struct Leader {
    Range range;                             // of server 0
    std::size_t servers = 1;                 // with server 0
    int workers = 0;                         // of the run
    bool workers_hold = false;               // something of their own
    std::function<void()> bring_up_to_date;  // the module's own range and statistics
    std::function<ps::RemoteClient&()> observer;
    std::function<std::vector<int>()> workers_here;
    std::function<void()> wake_workers;  // that wait for work; throws what has gone wrong meanwhile
    const Clock& clock;
    Nanoseconds patience{0};
  };
  ProcessHolders(Leader leader, WorkerOrders& orders) : leader_(std::move(leader)), orders_(orders) {}

  Range own_range() const override { return leader_.range; }
  std::vector<std::string> roll_call() override;
  void give(std::span<const std::string> orders) override;
  std::vector<std::optional<std::string>> answers(bool wait) override;

  using Read = std::function<std::vector<step::NamedTensor>()>;
  /// `read` opens the last complete checkpoint.
  void remember(Read read) { read_last_ = std::move(read); }
  /// Workers that the last roll call did not find: what they had in the last complete checkpoint stays in the next one, so that they have
  /// it again if the run is resumed. The tensors are mapped files, not memory.
  void add_absent_workers(std::vector<step::NamedTensor>& state) const;

 private:
  std::size_t others() const { return leader_.servers - 1; }
  bool all_answered();

  Leader leader_;
  WorkerOrders& orders_;
  Read read_last_ = [] { return std::vector<step::NamedTensor>{}; };
  std::vector<int> workers_;                         // of the last roll call, ascending
  std::vector<std::optional<std::string>> answers_;  // by holder
};

}  // namespace paceline::central

// The communicator of every CPU engine: turns operations into activities over an endpoint, and drives them.
//
// Every algorithm is a schedule. Where ranks share memory, some are executed in one pass over it (lowering.h); all others step by step.
#pragma once

#include <atomic>
#include <map>
#include <optional>

#include "paceline/comm/driver.h"
#include "paceline/comm/endpoint.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/lowering.h"
#include "paceline/comm/scratch.h"
#include "paceline/comm/tuning.h"

namespace paceline::comm {

class RankCommunicator final : public Communicator {
 public:
  RankCommunicator(std::unique_ptr<Endpoint> endpoint, const CommConfig& config, Judge judge);

  int rank() const override { return endpoint_->rank(); }
  int size() const override { return endpoint_->size(); }
  Topology topology() const override { return topology_; }
  std::vector<int> hosts() const override { return endpoint_->hosts(); }
  std::string engine() const override { return endpoint_->engine(); }
  int name_in_run(int rank) const override { return judge_.name(rank); }
  Work start(const Operation& operation) override;
  void run(const Operation& operation) override;
  std::int64_t bytes_sent(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Memory allocate(std::int64_t bytes) override { return endpoint_->allocate(bytes); }

 private:
  Call prepare(const Operation& operation);
  Work start_beside(Call call);
  /// Throws ConfigError if the operation is on GPU memory and this engine does not support that.
  void check_gpu(const Operation& operation) const;
  std::unique_ptr<Activity> message_for(const Operation& operation);
  /// How to execute a collective: by its algorithm's lowering if that applies; null: step by step.
  struct Execution {
    const schedule::Algorithm& algorithm;
    schedule::Problem problem;
    const LoweredPath* path = nullptr;
  };
  Execution execution_of(const Operation& operation) const;
  LoweringSite site_of(const Call& call, const Execution& execution);
  std::unique_ptr<Activity> activity_for(const Call& call);
  schedule::Problem problem_of(const Operation& operation, const schedule::Algorithm& algorithm) const;
  /// comm.algorithm, or what it resolves to (schedule::configured_for).
  std::string configured(const Operation& operation) const;
  std::string choose(const Operation& operation);
  /// The one that it names, that is configured, or that is chosen. ConfigError if the ranks are not placed as it needs.
  std::string algorithm_of(const Operation& operation);

  std::unique_ptr<Endpoint> endpoint_;
  const Topology topology_;  // found once: every collective asks
  CommConfig config_;
  Judge judge_;
  std::optional<schedule::Costs> costs_;                                     // determined when a choice first depends on them
  std::map<std::pair<Operation::Kind, std::int64_t>, std::string> choices_;  // by kind and rounded length
  // Collectives are numbered alike on all ranks: the numbers appear in error messages and determine the tags.
  std::int64_t collectives_ = 0;
  std::atomic<std::int64_t> messages_ = 0;  // several threads may send and receive
  Scratch scratch_;
  std::unique_ptr<gpu::Queue> beside_;  // for collectives that were started on a GPU; created with the first one
  Driver driver_;                       // last: its thread uses everything above
};

}  // namespace paceline::comm

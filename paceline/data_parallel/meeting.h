// Replicas that meet: each worker trains a copy of the model, and a Meeting combines the copies' parameters after the workers' own updates.
// The strategies local_sgd, sparknet, easgd, diloco, gossip, ad_psgd and sgp have one each (strategies/), and so have the objects for a
// user's own loop (replica.h).
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/data_parallel/meeting_options.h"
#include "paceline/step/strategy.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// What meetings need. Arena and communicator outlive them.
struct MeetingSetup {
  tensor::Arena& arena;  // this worker's replica
  comm::Communicator& comm;
  std::uint64_t seed = 0;
};

class Meeting {
 public:
  explicit Meeting(const MeetingSetup& setup) : setup_(setup) {}
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Called after the worker's own update of step `point`. Collective among the workers that meet. Returns the bytes that this worker sent.
  virtual std::int64_t meet(const step::Point& point) = 0;
  /// Called when the arena has parameters that all workers agree on, which makes earlier state void. Constructors of meetings with state
  /// call it too.
  virtual void prepare() {}
  /// Replaces the parameters by the agreed ones, for an evaluation or a checkpoint: the mean, unless a meeting has something better.
  /// Collective.
  virtual void agree() { average(parameters()); }

  /// Flat tensors of this worker, of any length, on which the next meeting depends.
  virtual std::vector<step::NamedTensor> memory() { return {}; }
  /// Whether the memory describes this worker's replica. If so, a run with another number of workers starts without it; otherwise each
  /// worker gets the mean of all.
  virtual bool remembers_replica() const { return false; }
  /// A checkpoint's replica and memory have been restored. Collective.
  virtual void loaded() {}

 protected:
  comm::Communicator& comm() const { return setup_.comm; }
  std::uint64_t seed() const { return setup_.seed; }
  at::Tensor parameters() const { return setup_.arena.parameters(); }  // [length]
  /// Averages `flat` over the workers. Returns the bytes that this worker sent.
  std::int64_t average(const at::Tensor& flat) const;

 private:
  MeetingSetup setup_;
};

std::unique_ptr<Meeting> make_local_sgd_meeting(const MeetingSetup& setup, const LocalSgdOptions& options);
std::unique_ptr<Meeting> make_elastic_meeting(const MeetingSetup& setup, const ElasticOptions& options);
std::unique_ptr<Meeting> make_diloco_meeting(const MeetingSetup& setup, const DiLoCoOptions& options);

inline constexpr const char* kGossipNeedsHost = "pairs of workers exchange messages in host memory";
std::unique_ptr<Meeting> make_gossip_meeting(const MeetingSetup& setup);

}  // namespace paceline::data_parallel

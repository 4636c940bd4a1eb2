// When a worker may pull, and what happens to a gradient that it pushes: the half of a parameter server that does no arithmetic.
//
// A consistency is a small state machine without clock, threads or parameters: the server calls it in the order of events, so that a test,
// a virtual clock and real workers get the same decisions. One file each in consistency/, one row in consistency/registry.cpp.
//
// A worker's life: joined → (may_pull → pulled → pushed or refused)* → left, where left may come at any time, and so may another joined.
// Whatever the order, some present worker can proceed: one that computes will push, and if none computes, one may pull.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"

namespace paceline::ps {

/// The settings of [ps] that consistencies read.
struct ConsistencyConfig {
  std::int64_t bound = 3;      // ssp: how many updates of its own a worker may be ahead of the slowest
  std::int64_t group = 0;      // k_*: K, the gradients per update; adasync: the initial K. 0: half of the workers, at least one
  double loss_exponent = 0.5;  // adasync: K ≈ K₀ (F₀ / F)^exponent
  void describe(Section& section);
};

/// What happens to a gradient.
struct Admission {
  enum class Fate { dropped, gathered, applied };  // applied: with all that were gathered before it
  Fate fate = Fate::applied;
  int gathered = 1;  // gradients of the update so far, this one included (dropped: 0); the update is made with their mean
  bool operator==(const Admission&) const = default;
};

class Consistency {
 public:
  virtual ~Consistency() = default;

  /// Whether `worker` may pull now. Asked again after every push, leave and join. False while the worker is absent, or computes something
  /// that will be used.
  virtual bool may_pull(int worker) const = 0;
  /// The worker has pulled, as it was allowed to, and now computes.
  virtual void pulled(int worker) = 0;
  /// Its gradient has arrived. `loss` is that of its batch; NaN if unknown. A gradient without a pull before it, or from an absent worker,
  /// is dropped.
  virtual Admission pushed(int worker, double loss) = 0;
  /// Its gradient has arrived and cannot be used: the worker may pull again, and has not advanced. Does nothing for an absent worker.
  virtual void refused(int worker) = 0;
  /// What `worker` computes now will be dropped, so it may stop and pull again.
  virtual bool cancelled(int worker) const { return static_cast<void>(worker), false; }
  /// Whether that can happen at all.
  virtual bool cancels() const { return false; }

  /// Workers join and leave, with old numbers or new ones. A worker that joins a second time without leaving starts over. One that leaves
  /// in the middle of a computation is no longer waited for; the admission of `left` is always `applied`, with the number of gathered
  /// gradients if its leaving completes an update, else with 0: nothing to apply. What a worker contributed before it left counts; when the
  /// last one leaves, what has been gathered is applied.
  virtual void joined(int worker) = 0;
  virtual Admission left(int worker) = 0;
  virtual std::vector<int> members() const = 0;  ///< who is present

  /// Its state as numbers for a checkpoint, and back. `load` throws ConfigError, and changes nothing, if they are not a state of this
  /// consistency.
  virtual std::vector<std::int64_t> save() const = 0;
  virtual void load(std::span<const std::int64_t> state) = 0;
};

/// A row of the table: what a recipe must know before a server is created, and how to create one.
struct ConsistencyKind {
  /// `workers` are present from the start, numbered from 0.
  std::unique_ptr<Consistency> (*make)(const ConsistencyConfig&, int workers);
  bool gathers = false;      // several gradients make one update
  bool chooses = false;      // which ones depends on the order of arrival, so several servers would choose differently
  bool stale = true;         // a gradient may be older than the parameters that it changes
  bool waits = true;         // a worker may have to wait for others before it pulls
  bool synchronous = false;  // every update has one gradient of each present worker, so that the order of arrival does not matter; all
                             // other consistencies, and what has them, are called asynchronous
};
std::span<const Entry<ConsistencyKind>> consistencies();
/// ConfigError if there is no such consistency.
const ConsistencyKind& consistency_kind(const std::string& name);
/// ConfigError if the settings do not fit the number of workers (K > workers, a bound below 0).
std::unique_ptr<Consistency> make_consistency(const std::string& name, const ConsistencyConfig& config, int workers);

/// For `load`: throws ConfigError unless the numbers of a checkpoint are `sound`.
void check_state(bool sound);

}  // namespace paceline::ps

// When a worker may pull, and what becomes of a gradient that it pushes: the half of a parameter server that knows nothing of numbers.
//
// A consistency is a small state machine without time, threads or memory: whoever runs the server calls it in the order of events, so that
// a test, a virtual clock and real workers meet the same decisions. One file each in consistency/, one row in consistency/registry.cpp.
//
// A worker's life: joined → (may_pull → pulled → pushed or refused)* → left, where left may come at any time, and so may another joined.
// Whatever the order, some worker that is present can proceed: one that computes pushes some day, and if none computes, one may pull.
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
  std::int64_t group = 0;      // k_*: K, the gradients of one update; adasync: the first K. 0: half of the workers, at least one
  double loss_exponent = 0.5;  // adasync: K ≈ K₀ (F₀ / F)^exponent
  void describe(Section& section);
};

/// What becomes of a gradient.
struct Admission {
  enum class Fate { dropped, gathered, applied };  // applied: with all that were gathered before it
  Fate fate = Fate::applied;
  int gathered = 1;  // gradients of the update so far, this one included (dropped: 0); the update is made with their mean
  bool operator==(const Admission&) const = default;
};

class Consistency {
 public:
  virtual ~Consistency() = default;

  /// Whether `worker` may pull now. Asked again after every push, leave and join. Nobody may who is away, or who computes and not in vain.
  virtual bool may_pull(int worker) const = 0;
  /// It did, as it may, and from now on computes.
  virtual void pulled(int worker) = 0;
  /// Its gradient has come. `loss` is that of its batch, where it is known (NaN: not). A gradient that no pull went before, or of a worker
  /// that is away, is dropped.
  virtual Admission pushed(int worker, double loss) = 0;
  /// Its gradient has come and cannot be used: it may pull anew, and is no further than it was. Of a worker that is away: nothing.
  virtual void refused(int worker) = 0;
  /// What `worker` computes now will be dropped, so that it may leave off and pull anew.
  virtual bool in_vain(int worker) const { return static_cast<void>(worker), false; }
  /// Whether that can ever be.
  virtual bool cancels() const { return false; }
  /// Whether every update has one contribution of everybody present, so that it does not depend on who comes first.
  virtual bool waits_for_everybody() const { return false; }

  /// Workers come and go, under old numbers or new ones. Whoever joins a second time without leaving begins anew. Whoever leaves in the
  /// middle of a computation is no longer waited for; the admission of `left` is always `applied`, with the number of gathered gradients if
  /// its going completes an update, else with 0: nothing to apply. What a worker gathered before it left counts; when the last one leaves,
  /// what has been gathered is applied.
  virtual void joined(int worker) = 0;
  virtual Admission left(int worker) = 0;
  virtual std::vector<int> members() const = 0;  ///< who is present

  /// Numbers for a checkpoint, and back. `load` throws ConfigError, and changes nothing, where they are not the state of this consistency.
  virtual std::vector<std::int64_t> save() const = 0;
  virtual void load(std::span<const std::int64_t> state) = 0;
};

/// A row of the table: what a recipe has to know before a server is made, and how one is made.
struct ConsistencyKind {
  /// `workers` are there from the start, numbered from 0.
  std::unique_ptr<Consistency> (*make)(const ConsistencyConfig&, int workers);
  bool gathers = false;  // several gradients make one update
  bool chooses = false;  // which ones depends on who comes first, and several servers would choose differently
  bool stale = true;     // a gradient may be older than the parameters that it changes
};
std::span<const Entry<ConsistencyKind>> consistencies();
/// ConfigError where there is none of that name.
const ConsistencyKind& consistency_kind(const std::string& name);
/// ConfigError where the settings do not fit the number of workers (K > workers, a bound below 0).
std::unique_ptr<Consistency> make_consistency(const std::string& name, const ConsistencyConfig& config, int workers);

/// For `load`: throws ConfigError unless the numbers of a checkpoint are `sound`.
void check_state(bool sound);

}  // namespace paceline::ps

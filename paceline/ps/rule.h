// An update rule: what the server does with a gradient that was computed on older parameters.
//
// Most rules only adjust the gradient, which then goes through the optimizer of the recipe (momentum, Nesterov, weight decay, Adam, LARS);
// adjustments act on the raw gradient, before decay and momentum. A rule sees slices: the server walks through its range block by block, so
// that adjustment and update are one pass over memory. Each has a file in rules/ and a row in rules/registry.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/registry.h"
#include "paceline/optim/optimizer.h"
#include "paceline/ps/kernels.h"
#include "paceline/ps/report.h"

namespace paceline::ps {

struct PsConfig;

/// What a rule is constructed from.
struct RuleSetup {
  const PsConfig& config;
  const optim::OptimConfig& optim;
  int workers = 1;  // more may join
  std::uint64_t seed = 0;
};

/// What the server knows about a push.
struct Arrival {
  int worker = 0;
  std::int64_t staleness = 0;  // updates between its pull and now
  std::int64_t updates = 0;    // made so far
  float rate = 0;
  float scale = 1;  // of the gradient
};

/// A run of elements within one tensor.
struct Slice {
  Place place;
  std::int64_t count = 0;
  const float* gradient = nullptr;  // as received; for `replica` rules: the worker's parameters
  float* out = nullptr;             // what the optimizer gets; may be the gradient itself
  float* parameters = nullptr;      // the server's
  float* pulled = nullptr;          // what the worker had pulled, if needs().pulled
  float* kept = nullptr;            // the rule's own memory, if needs().kept
  float* kept_second = nullptr;     // more of it, if needs().kept_second
  float* kept_of_worker = nullptr;  // memory per worker, if needs().kept_of_worker
  bool decay = true;                // whether weight decay acts on it
};

class UpdateRule {
 public:
  struct Needs {
    bool pulled = false, kept = false, kept_second = false, kept_of_worker = false;
    bool whole_update = false;   // adjust() makes the update itself; the optimizer has nothing to do
    bool whole_tensors = false;  // adjust() needs all elements of a tensor; with whole_update
    bool whole_range = false;    // observe() measures all parameters together, which several servers cannot
    bool sends_own = false;      // workers receive something other than the parameters: send()
    bool replica = false;        // workers push their parameters, and get them back changed
    bool advises = false;        // workers wait for the answer of on_report() before they continue with their gradient
  };
  /// What the rule keeps besides its slices' memory, for a checkpoint: named rows of numbers.
  struct State {
    std::string name;
    std::vector<float> values;
    bool operator==(const State&) const = default;
  };

  virtual ~UpdateRule() = default;
  virtual Needs needs() const { return {}; }
  /// The reason why a gradient cannot be replaced by a step of the worker's optimizer; empty if it can.
  virtual std::string why_not_steps() const { return ""; }
  /// The reason why the rule cannot use gradients, so that workers must push steps of their own optimizers; empty if it can.
  virtual std::string why_not_gradients() const { return ""; }
  /// Called with the whole range before a gradient is used, and before any other question about this push.
  virtual void observe(const Slice&, const Arrival&) {}
  /// How many gradients a push is the sum of, which is how often weights decay.
  virtual std::int64_t gradients_in_a_push() const { return 1; }
  /// A factor of the rate, for this gradient alone. If several are gathered for one update, which has a single rate, their parts are scaled
  /// instead.
  virtual double rate_factor(const Arrival&) const { return 1; }
  /// Whether adjust() does anything.
  virtual bool adjusts() const { return false; }
  virtual void adjust(const Slice&, const Arrival&) {}
  /// Called after the update of a slice.
  virtual void learn(const Slice&, const Arrival&) {}
  /// A worker starts over: discards its state.
  virtual void forget(const Slice& slice) {
    for_each_parallel(slice.place, slice.count, Scale{slice.kept_of_worker, slice.kept_of_worker, 0});
  }
  /// Writes the answer to a pull to `out`.
  virtual void send(const Slice&, float /*rate*/) {}
  /// For workers: how many local steps they make between two pushes.
  virtual std::int64_t period() const { return 1; }

  /// A worker has reported its forward pass; called once per minibatch.
  virtual Advice on_report(int /*worker*/, const Report&) { return {}; }
  /// A worker has left; it may come back.
  virtual void on_leave(int /*worker*/) {}
  /// Null unless the rule has predictors.
  virtual const PredictorRecord* predictions() const { return nullptr; }

  /// load() gets what save() returned, perhaps with another number of workers. Rows that a checkpoint lacks are missing. ConfigError if a
  /// row does not fit; then nothing has changed.
  virtual std::vector<State> save() const { return {}; }
  virtual void load(std::span<const State>) {}
};

/// A row of the table: how to create a rule, and what must be known before that.
struct RuleKind {
  std::unique_ptr<UpdateRule> (*make)(const RuleSetup&);
  bool adds = false;  // with an optimizer that keeps nothing, a push is one addition to every parameter, and needs no lock
};
std::span<const Entry<RuleKind>> update_rules();
/// The rule that setup.config names.
std::unique_ptr<UpdateRule> make_rule(const RuleSetup& setup);

}  // namespace paceline::ps

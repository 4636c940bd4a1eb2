// The cost of a training step: plays the step programs of all stages of a pipeline (schedule/program.h) on a cluster. The times of compute
// actions come from ComputeTimes, those of collectives from the lists of steps that `comm` runs (collective_costs.h), those of messages
// between stages from their links (placement.h). A rank's lanes run concurrently, and computing during a collective is slower by the
// device's measured factor.
//
// Ranks that share a program are assumed to be equally fast; `Jitter` adds the wait for the slowest of them.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "paceline/perf/cluster.h"
#include "paceline/perf/compute_times.h"
#include "paceline/perf/stragglers.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

class CollectiveCosts;
class Prices;
struct PlayedStep;

inline constexpr std::size_t kProgramAxes = 4;
inline constexpr schedule::Action::Axis kAxesOfPrograms[kProgramAxes] = {schedule::Action::Axis::data, schedule::Action::Axis::pipeline,
                                                                         schedule::Action::Axis::tensor, schedule::Action::Axis::server};
/// A value for each axis of a program: data, pipeline, tensor, server.
struct ByAxis {
  std::array<double, kProgramAxes> of{};
  double& operator[](schedule::Action::Axis axis) { return of[static_cast<std::size_t>(axis)]; }
  double operator[](schedule::Action::Axis axis) const { return of[static_cast<std::size_t>(axis)]; }
  double sum() const { return of[0] + of[1] + of[2] + of[3]; }
};

/// A breakdown of a step's seconds, which add up to the step.
struct Split {
  double compute = 0;     // forward and backward passes
  double optimizer = 0;   // updates that are not hidden behind a pass
  double encoding = 0;    // compressors, likewise
  ByAxis exposed;         // communication, likewise
  double bubble = 0;      // waiting for another stage, or for the step's end
  double straggling = 0;  // waiting for the slowest of equal workers
  double total() const { return compute + optimizer + encoding + exposed.sum() + bubble + straggling; }
};

/// One stage of the pipeline: values for each rank that runs its program.
struct StageCost {
  Split split;
  ByAxis communication;  // seconds, including hidden ones
  ByAxis bytes;          // bytes that a rank sends, or pulls from servers
};

struct StepCost {
  double seconds = 0;
  double low = 0, high = 0;       // the interval, by the sources of the values: measurements are more certain than data sheets
  Split split;                    // mean over the stages
  ByAxis communication, bytes;    // the largest of any stage
  std::string bottleneck;         // the largest part of the split: "compute", "data communication", "bubble", …
  double staleness = 0;           // average number of updates by others between a worker's pull and its push; 0 if steps are synchronous
  double steps_per_s = 0;         // of all workers together: asynchronous workers make one each, synchronous ones make one together
  std::vector<StageCost> stages;  // in the order of the programs
  std::vector<std::string> notes;
};

/// Multiplies all seconds, including those of the split, by `factor`.
void scale(StepCost& cost, double factor);

struct CostOptions {
  Jitter jitter = {};
  bool asynchronous = false;      // push and pull: each worker when it is ready; otherwise all at the same time, competing for the links
  double between_s = 0;           // asynchronous: seconds of the steps that a worker makes on its own between two visits to the servers
  std::int64_t server_hosts = 0;  // links that the servers have; 0: each server has its own
  double crowd = 1;               // ranks per device of a host; above 1: they take turns on the devices
  bool splits = true;             // whether to fill in the splits; otherwise only the seconds are valid
};

/// Caches the costs of collectives, so that thousands of programs on one cluster are cheap. Not thread-safe.
class CostModel {
 public:
  explicit CostModel(const Cluster& cluster);
  /// Shares everything that does not depend on the speed of links with the model of a cluster of the same shape.
  CostModel(const Cluster& cluster, const CostModel& other);
  ~CostModel();

  /// `stages`: the programs by rank of the pipeline; `settings`: those from which they were made; their mesh is placed on the cluster with
  /// the tensor axis innermost, then data, then pipeline (comm/mesh.h). ConfigError if the cluster has fewer devices, or a program waits
  /// for a message that no rank sends.
  StepCost cost(std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings, const ComputeTimes& times,
                const CostOptions& options = {}) const {
    return cost({stages, settings}, times, options, nullptr);
  }

  /// A step of many micro-batches, from programs of the same step with fewer of them. For `round`, and for when the result is nullopt, see
  /// play_longer() in played_step.h.
  struct ShortStep {
    std::span<const schedule::Program> stages;
    const schedule::ProgramSettings& settings;
  };
  using WriteStep = std::function<ShortStep(std::int64_t micro_batches)>;
  /// Plays of steps that differ only in their number of micro-batches, by this number and whether splits are filled in.
  using Plays = std::map<std::pair<std::int64_t, bool>, PlayedStep>;
  std::optional<StepCost> cost_of_longer(const WriteStep& write, const schedule::ProgramSettings& settings, const ComputeTimes& times,
                                         const CostOptions& options, std::int64_t round, Plays* plays = nullptr) const;
  /// As above, but a step that is in `plays` is not played again.
  StepCost cost(const ShortStep& step, const ComputeTimes& times, const CostOptions& options, Plays* plays) const;

  /// Whether programs may fold their passes (ProgramSettings::folds): no action slows down another one.
  static bool folds(const Cluster& cluster, const CostOptions& options);

  /// Seconds of a collective among the ranks of an axis, and the algorithm that "auto" takes.
  double collective_seconds(const schedule::Action& action, const schedule::ProgramSettings& settings) const;
  std::string algorithm_of(const schedule::Action& action, const schedule::ProgramSettings& settings) const;

  const Cluster& cluster() const { return cluster_; }

 private:
  /// Adds the time around the programs, and the wait for other workers.
  StepCost finished(PlayedStep played, std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings,
                    const ComputeTimes& times, const CostOptions& options, const Prices& prices) const;
  /// expected_maximum(), cached because it is an integral.
  double slowest_of(const Jitter& jitter, std::int64_t ranks) const;

  Cluster cluster_;
  std::unique_ptr<CollectiveCosts> collectives_;
  mutable std::map<std::tuple<std::string, double, double, std::int64_t>, double> slowest_;
};

/// For a single question.
StepCost cost_of(std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings, const ComputeTimes& times,
                 const Cluster& cluster, const CostOptions& options = {});

}  // namespace paceline::perf

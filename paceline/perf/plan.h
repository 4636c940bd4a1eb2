// The planner: which way of training is the fastest on a cluster. It searches data × tensor × pipeline × ZeRO × micro-batches × schedule ×
// recomputation × bucket × compression, drops what does not fit a device's memory (memory/estimate.h), and costs the rest by the step
// programs that the strategies state themselves (schedule/program.h, step_cost.h). The collective algorithm is chosen for each message by
// its cost, as `comm` does. docs/planner.md is the user's view.
//
// Plans that compute the same as one worker with the whole batch stand in one list. Those that lose bits of gradients on the way, or use
// stale ones, stand in another: their throughput says nothing about the accuracy that comes of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/memory/estimate.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// How a strategy states its step, one program per stage of the pipeline (strategies/registry.h). It comes as an argument, since strategies
/// see LibTorch.
using Programs = std::vector<schedule::Program> (*)(const schedule::ProgramModel&, const schedule::ProgramSettings&);

struct PlanStrategy {
  std::string key;
  Programs programs = nullptr;
  bool asynchronous = false;  // workers do not wait for one another
  std::int64_t period = 1;    // steps between two meetings; the program is that of a step with one
  std::string remark = {};    // what it gives up
};

/// Another way for gradients to travel: a compressor, or `none` where they are only rounded (comm.gradient_dtype).
struct OtherWire {
  std::string compression = "none";
  double bytes = 2;      // of an element
  bool at_most = false;  // codes differ in length; the longest is costed
  schedule::CompressedTraffic traffic = schedule::CompressedTraffic::averaged;
  int rounds = 1;
  bool by_value = false;  // what becomes of an element depends on it alone: ranks of the tensor axis stay alike
  memory::Compression holds = {};
  std::optional<int> moments = {};  // of the optimizer behind it; empty: as without it
};

struct PlanStrategies {
  PlanStrategy alone, together;           // of one worker, and of several that compute what it would
  std::vector<PlanStrategy> others = {};  // that train otherwise than one worker with the whole batch
  std::vector<OtherWire> wires = {};
};

/// A way of training, as a recipe says it.
struct Choice {
  std::string strategy;  // a key of PlanStrategies
  bool together = true;  // workers make every step together: mesh, buckets and updates are settings too
  schedule::ProgramSettings program;
  std::string hybrid = "none", compression = "none";
  memory::Compression holds = {};   // as OtherWire::holds
  std::optional<int> moments = {};  // as OtherWire::moments
  bool sequence = false;            // the tensor axis shares positions, too
  double cut_gb = 0;                // stages are cut so that none needs more than this; 0: by time alone

  int workers() const { return program.data * program.pipeline * program.tensor; }
  /// Gradients travel in bf16 and are added in fp32.
  bool rounds() const { return program.compressed == schedule::CompressedTraffic::rounded; }
  /// The compressor that has its encoding times.
  std::string coder() const { return rounds() ? "bf16" : compression; }
};
/// "strategy.name=allreduce", "parallel.data=8", …: what a recipe of this choice says beside the network and its data.
std::vector<std::string> settings_of(const Choice& choice);
/// "data 8 × pipeline 2, ZeRO 1, 4 micro-batches": for a table; what is as usual is left out.
std::string title_of(const Choice& choice);

/// The times of a device's passes; made once for each way to share the layers.
using MakeTimes = std::function<std::unique_ptr<ComputeTimes>(const Device&, const Choice&)>;

struct PlanQuestion {
  const graph::Graph* graph = nullptr;
  Cluster cluster;
  std::int64_t workers = 1;
  double crowd = 1;                       // ranks of a host for each of its devices (CostOptions)
  std::int64_t batch = 1;                 // samples of a step, all workers together
  std::int64_t memory = 0;                // bytes of a device; 0: what the cluster says
  std::int64_t storage = 4;               // bytes of a stored parameter
  bool fp32_gradients = false;            // whatever parameters are stored in; otherwise gradients are stored like them
  bool fp16 = false;                      // is what they are stored in
  std::int64_t product = 4;               // bytes of an operand of the products
  int moments = 2;                        // fp32 tensors of the optimizer
  Precision precision = Precision::fp32;  // of the products
  /// Sizes that the search must not change: data, tensor, pipeline, zero, micro_batches.
  std::map<std::string, std::int64_t> fixed = {};
  double price = 0;       // of a device for an hour; 0: not asked
  std::size_t rows = 10;  // plans to keep
  PlanStrategies strategies;
  MakeTimes times = nullptr;  // empty: by the roofline
  Jitter jitter = {};         // of a worker's step: who makes steps together waits for the slowest
  /// By how much runs of this kind took longer than the model says, and the seconds of this very one, where any was measured.
  std::function<double(const Choice&)> correction = nullptr;
  std::function<std::optional<double>(const Choice&)> measured = nullptr;

  std::int64_t gradient() const { return fp32_gradients ? 4 : storage; }  // bytes of a stored one
};

/// What a step would take if one part of the cluster were twice as fast.
struct Gain {
  std::string what;  // "processor", "memory bandwidth", "nvlink", "network"
  double seconds = 0;
};

struct Plan {
  Choice choice;
  StepCost cost;
  std::string rank;     // the kind of rank that needs the most memory
  memory::Bytes bytes;  // of it
  double samples_per_s = 0;
  double efficiency = 0;    // against as many devices that only compute, and share the work evenly
  double device_hours = 0;  // for a million samples
  double money = 0;         // for a million samples, where a price is given
  std::vector<Gain> gains;
  std::string algorithm;  // of the largest message along the data axis
  std::string remark;     // of plans that train otherwise
  double measured_s = 0;  // of a step, where the plan was run (run_steps.h)

  /// By which plans are ranked: by the clock where one was run.
  double step_s() const { return measured_s > 0 ? measured_s : cost.seconds; }
  /// What the step waits for: the largest part of its split, and where that is computing, the part of the cluster that would help most if
  /// it were twice as fast: "processor" or "memory bandwidth", say.
  std::string bottleneck() const;
};

struct Plans {
  std::vector<Plan> exact, others;  // the fastest first
  std::int64_t considered = 0, costed = 0;
  std::int64_t too_large = 0;  // that do not fit
  std::vector<std::string> notes;
};

/// ConfigError if the workers cannot share the batch, are more than the cluster has, or where nothing fits: then with the smallest need
/// of a device and the fewest devices of this kind that would do.
Plans make_plans(const PlanQuestion& question);

/// A choice that is given, for `--explain` and for what is trained already.
Plan cost_choice(const PlanQuestion& question, const Choice& choice);

/// The programs of a choice, by stage.
std::vector<schedule::Program> programs_of(const PlanQuestion& question, const Choice& choice);

}  // namespace paceline::perf

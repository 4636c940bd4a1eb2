// The planner: finds the fastest way to train on a cluster. It searches data × tensor × pipeline × ZeRO × micro-batches × schedule ×
// recomputation × bucket × compression, drops what does not fit into a device's memory (memory/estimate.h), and costs the rest by the
// strategies' own step programs (schedule/program.h, step_cost.h). The collective algorithm is chosen for each message by its cost, as
// `comm` does. docs/planner.md is the user's view.
//
// Plans that compute the same as one worker with the whole batch are in one list. Those that compress gradients or use stale ones are in
// another, because their throughput says nothing about the resulting accuracy.
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

/// Writes a strategy's step programs, one per stage of the pipeline (strategies/registry.h). It is an argument because strategies depend on
/// LibTorch.
using Programs = std::vector<schedule::Program> (*)(const schedule::ProgramModel&, const schedule::ProgramSettings&);

struct PlanStrategy {
  std::string key;
  Programs programs = nullptr;
  bool asynchronous = false;  // workers do not wait for one another
  std::int64_t period = 1;    // steps between two meetings; the program is that of a step with a meeting
  std::string remark = {};    // what it gives up
};

/// Another way to send gradients: with a compressor, or `none` if they are only rounded (comm.gradient_dtype).
struct OtherWire {
  std::string compression = "none";
  double bytes = 2;      // of an element
  bool at_most = false;  // codes differ in length; `bytes` is that of the longest
  schedule::CompressedTraffic traffic = schedule::CompressedTraffic::averaged;
  int rounds = 1;
  bool by_value = false;  // elements are compressed independently, so that ranks of the tensor axis stay equal
  memory::Compression holds = {};
  std::optional<int> moments = {};  // of the optimizer with this compressor; empty: unchanged
};

struct PlanStrategies {
  PlanStrategy alone, together;           // for one worker, and for several that compute the same as one
  std::vector<PlanStrategy> others = {};  // those that train differently from one worker with the whole batch
  std::vector<OtherWire> wires = {};
};

/// A way to train, in the terms of a recipe.
struct Choice {
  std::string strategy;  // a key of PlanStrategies
  bool together = true;  // workers make every step together: mesh, buckets and updates are settings too
  schedule::ProgramSettings program;
  std::string hybrid = "none", compression = "none";
  memory::Compression holds = {};   // as OtherWire::holds
  std::optional<int> moments = {};  // as OtherWire::moments
  bool sequence = false;            // the tensor axis shares positions, too
  double cut_gb = 0;                // stages are cut so that none needs more memory than this; 0: only by time

  int workers() const { return program.data * program.pipeline * program.tensor; }
  /// Gradients travel in bf16 and are added in fp32.
  bool rounds() const { return program.compressed == schedule::CompressedTraffic::rounded; }
  /// The compressor whose encoding times apply.
  std::string coder() const { return rounds() ? "bf16" : compression; }
};
/// "strategy.name=allreduce", "parallel.data=8", …: the settings of a recipe with this choice, apart from the network and its data.
std::vector<std::string> settings_of(const Choice& choice);
/// "data 8 × pipeline 2, ZeRO 1, 4 micro-batches": for a table; defaults are left out.
std::string title_of(const Choice& choice);

/// Makes the times of a device's passes; called once for each way to share the layers.
using MakeTimes = std::function<std::unique_ptr<ComputeTimes>(const Device&, const Choice&)>;

struct PlanQuestion {
  const graph::Graph* graph = nullptr;
  Cluster cluster;
  std::int64_t workers = 1;
  double crowd = 1;                       // ranks per device of a host (CostOptions)
  std::int64_t batch = 1;                 // samples of a step, all workers together
  std::int64_t memory = 0;                // bytes of a device; 0: what the cluster says
  std::int64_t storage = 4;               // bytes of a stored parameter
  bool fp32_gradients = false;            // gradients are stored in fp32; otherwise in the type of the parameters
  bool fp16 = false;                      // parameters are stored in fp16
  std::int64_t product = 4;               // bytes of an operand of a matrix product
  int moments = 2;                        // fp32 tensors of the optimizer
  Precision precision = Precision::fp32;  // of matrix products
  /// Sizes that the search must keep: data, tensor, pipeline, zero, micro_batches.
  std::map<std::string, std::int64_t> fixed = {};
  double price = 0;       // per device and hour; 0: unknown
  std::size_t rows = 10;  // plans to keep
  PlanStrategies strategies;
  MakeTimes times = nullptr;  // empty: by the roofline
  Jitter jitter = {};         // of a worker's step: workers that make steps together wait for the slowest one
  /// The factor by which runs of this kind took longer than the model predicts, and the seconds of exactly this run, if it was measured.
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
  memory::Bytes bytes;  // of that rank
  double samples_per_s = 0;
  double efficiency = 0;    // relative to the same number of devices that share the work evenly and do nothing but compute
  double device_hours = 0;  // for a million samples
  double money = 0;         // for a million samples, if there is a price
  std::vector<Gain> gains;
  std::string algorithm;  // of the largest message along the data axis
  std::string remark;     // for plans that train differently: what they give up
  double measured_s = 0;  // of a step, if the plan was run (run_steps.h)

  /// The time by which plans are ranked: the measured one if the plan was run.
  double step_s() const { return measured_s > 0 ? measured_s : cost.seconds; }
  /// What limits the step: the largest part of its split or, if that is computing, the part of the cluster that would help most if it were
  /// twice as fast: "processor" or "memory bandwidth", say.
  std::string bottleneck() const;
};

struct Plans {
  std::vector<Plan> exact, others;  // the fastest first
  std::int64_t considered = 0, costed = 0;
  std::int64_t too_large = 0;  // plans that do not fit
  std::vector<std::string> notes;
};

/// ConfigError if the workers cannot share the batch, if there are more than the cluster has devices, or if nothing fits; the message then
/// has the smallest memory per device that would do, and the smallest number of devices of this kind.
Plans make_plans(const PlanQuestion& question);

/// The plan of a given choice, for `--explain` and for the current recipe.
Plan cost_choice(const PlanQuestion& question, const Choice& choice);

/// The programs of a choice, by stage.
std::vector<schedule::Program> programs_of(const PlanQuestion& question, const Choice& choice);

}  // namespace paceline::perf

#include "paceline/perf/plan_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/graph/units.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/plan_floor.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::perf {
namespace {

constexpr std::int64_t kMostMicroBatches = 256;  // of a pipeline: with so many, its bubble is negligible
constexpr std::size_t kManyCounts = 8;           // numbers of micro-batches: if there are more, not all are tried
constexpr std::int64_t kMostTensor = 8;          // if hosts have one device each; otherwise the axis stays inside a host

bool shares_connected(const PlanQuestion& question, const Choice& mesh) {
  try {
    return graph::hybrid_split(*question.graph, "auto", mesh.program.data, question.batch).splits_anything();
  } catch (const ConfigError&) {
    return false;
  }
}

/// The value that the question fixes; nullopt if it does not.
std::optional<std::int64_t> fixed(const PlanQuestion& question, const std::string& key) {
  const auto found = question.fixed.find(key);
  return found == question.fixed.end() ? std::nullopt : std::optional(found->second);
}
bool allows(const PlanQuestion& question, const std::string& key, std::int64_t value) {
  const auto only = fixed(question, key);
  return !only || *only == value;
}

/// The numbers that give equal micro-batches; if there are many, only some of them, each at least twice the previous one, like powers of
/// two. The last has one sample per micro-batch, which needs the least memory.
std::vector<std::int64_t> micro_batches(const PlanQuestion& question, const Choice& mesh) {
  const std::int64_t samples = mesh.program.samples;
  if (const auto only = fixed(question, "micro_batches")) return *only <= samples ? std::vector{*only} : std::vector<std::int64_t>{};
  const std::int64_t most = mesh.program.pipeline > 1 ? kMostMicroBatches : samples;
  const std::vector<std::int64_t> all = divisors_of(samples);
  std::vector<std::int64_t> counts;
  for (const std::int64_t count : all)
    if (count == samples || (count <= most && (all.size() <= kManyCounts || counts.empty() || count >= 2 * counts.back())))
      counts.push_back(count);
  return counts;
}

}  // namespace

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

namespace {

std::int64_t widest_near(const PlanQuestion& question) { return question.cluster.devices > 1 ? question.cluster.devices : kMostTensor; }

/// Meshes whose tensor axis has more than `above` and at most `widest` ranks.
std::vector<Choice> meshes_between(const PlanQuestion& question, std::int64_t above, std::int64_t widest) {
  const auto units = static_cast<std::int64_t>(graph::units_of(*question.graph).size());
  std::vector<Choice> found;
  for (const std::int64_t tensor : divisors_of(question.workers)) {
    if (tensor <= above || tensor > widest || !allows(question, "tensor", tensor)) continue;
    for (const bool sequence : {false, true}) {
      if (tensor == 1 ? sequence : !graph::splits(*question.graph, static_cast<int>(tensor), sequence)) continue;
      for (const std::int64_t pipeline : divisors_of(question.workers / tensor)) {
        const std::int64_t data = question.workers / tensor / pipeline;
        if (pipeline > units || question.batch % data != 0 || !allows(question, "pipeline", pipeline) || !allows(question, "data", data))
          continue;
        Choice& mesh = found.emplace_back();
        mesh.strategy = (question.workers == 1 ? question.strategies.alone : question.strategies.together).key, mesh.sequence = sequence;
        mesh.program.data = static_cast<int>(data), mesh.program.pipeline = static_cast<int>(pipeline);
        mesh.program.tensor = static_cast<int>(tensor), mesh.program.samples = question.batch / data;
        mesh.program.overlap = data > 1;
        mesh.program.storage_bytes = question.storage, mesh.program.fp32_gradients = question.fp32_gradients;
        mesh.program.wire_bytes = static_cast<double>(question.gradient());
        mesh.program.activation_bytes = question.product;
      }
    }
  }
  return found;
}

}  // namespace

std::vector<Choice> all_meshes(const PlanQuestion& question) { return meshes_between(question, 0, question.workers); }

std::vector<Choice> meshes(const PlanQuestion& question) {
  if (fixed(question, "tensor")) return all_meshes(question);
  const std::int64_t near = widest_near(question);
  std::vector<Choice> found = meshes_between(question, 0, near);
  if (near >= question.workers || PlanFloor(question).any_fits(found)) return found;
  for (Choice& mesh : meshes_between(question, near, question.workers)) found.push_back(std::move(mesh));
  return found;
}

std::vector<Choice> frugal_choices_on(const PlanQuestion& question, const Choice& mesh) {
  std::vector<Choice> choices = choices_on(question, mesh);
  std::int64_t most = 0;  // micro-batches
  bool shards = false;
  for (const Choice& choice : choices) most = std::max(most, choice.program.micro_batches), shards = shards || choice.program.zero > 0;
  // Which ZeRO stage needs the least memory depends on the layers: stage 3 may gather more than it saves.
  std::erase_if(choices,
                [&](const Choice& choice) { return choice.program.micro_batches != most || (shards && choice.program.zero == 0); });
  for (Choice& choice : choices) choice.program.recompute = "all";
  return choices;
}

std::vector<Choice> choices_on(const PlanQuestion& question, const Choice& mesh) {
  std::vector<Choice> choices;
  const auto add = [&](std::int64_t count, int zero, std::string_view schedule, int chunks) {
    Choice& choice = choices.emplace_back(mesh);
    choice.program.micro_batches = count, choice.program.zero = zero, choice.program.sharded_update = zero > 0;
    choice.program.schedule = schedule, choice.program.chunks = chunks;
  };
  const auto units = static_cast<int>(graph::units_of(*question.graph).size());
  for (const std::int64_t count : micro_batches(question, mesh))
    for (int zero = 0; zero <= (mesh.program.data > 1 ? 3 : 0); ++zero) {
      if (!allows(question, "zero", zero)) continue;
      if (mesh.program.pipeline == 1) {
        add(count, zero, "1f1b", 1);
        continue;
      }
      for (const auto& entry : schedule::pipelines()) {
        const int chunks = schedule::resolve_chunks(entry, 0);
        const schedule::PipelineProblem problem{mesh.program.pipeline, static_cast<int>(count), chunks};
        if (problem.virtual_stages() > units || (chunks > 1 && count % mesh.program.pipeline != 0)) continue;
        add(count, zero, entry.key, chunks);
      }
    }
  // Layers that data-parallel workers share work with every ZeRO stage, with micro-batches and with recomputation.
  const bool data_alone = mesh.program.tensor == 1 && mesh.program.pipeline == 1 && mesh.program.data > 1;
  if (data_alone && shares_connected(question, mesh))
    for (std::size_t i = 0, whole = choices.size(); i < whole; ++i) {
      Choice hybrid = choices[i];
      hybrid.hybrid = "auto";
      choices.push_back(std::move(hybrid));
    }
  return choices;
}

std::optional<Choice> with_wire(const Choice& choice, const OtherWire& wire) {
  // A part of a bucket cannot be compressed separately, and compressors need the gradients of all layers.
  const bool whole = choice.program.zero == 0 && choice.hybrid == "none" && (choice.program.tensor == 1 || wire.by_value);
  if (choice.program.data == 1 || (wire.compression != "none" && !whole)) return std::nullopt;
  Choice other = choice;
  other.compression = wire.compression, other.holds = wire.holds, other.moments = wire.moments;
  other.program.wire_bytes = wire.bytes, other.program.compressed = wire.traffic, other.program.compressed_rounds = wire.rounds;
  return other;
}

std::vector<Choice> with_buckets(const Choice& choice) {
  std::vector<Choice> choices;
  if (choice.program.data == 1 || choice.program.zero == 3) return choices;  // nothing is sent, or it is sent by units
  for (const std::int64_t mebibytes : {2, 32, 512}) {
    Choice& other = choices.emplace_back(choice);
    other.program.bucket_bytes = mebibytes << 20;
  }
  return choices;
}

bool puts_off_weights(const schedule::ProgramSettings& program) {
  return program.pipeline > 1 &&
         schedule::puts_off_weights(find(schedule::pipelines(), "parallel.schedule", program.schedule).make, program.chunks);
}

std::int64_t bytes_needed(const PlanQuestion& question, const memory::Estimator& network, const Choice& choice) {
  memory::Plan plan = memory_plan(question, choice);
  plan.limit = memory_limit(question);  // so that stages are cut to fit, if possible
  return memory::need_of(network, plan).bytes;
}

memory::Plan memory_plan(const PlanQuestion& question, const Choice& choice) {
  const schedule::ProgramSettings& program = choice.program;
  memory::Plan plan;
  plan.data = program.data, plan.pipeline = program.pipeline, plan.tensor = program.tensor, plan.zero = program.zero;
  plan.samples = program.samples, plan.micro_batches = program.micro_batches;
  plan.schedule = program.schedule, plan.chunks = program.chunks;
  plan.sequence = choice.sequence, plan.hybrid = choice.hybrid, plan.recompute = program.recompute;
  plan.storage = question.storage, plan.fp32_gradients = question.fp32_gradients;
  plan.fp16 = question.fp16, plan.product = question.product, plan.moments = choice.moments.value_or(question.moments);
  plan.gpu = question.cluster.device.kind == "gpu";
  plan.bucket = program.bucket_bytes, plan.bf16_gradients = choice.rounds(), plan.compression = choice.holds;
  return plan;
}

std::int64_t memory_limit(const PlanQuestion& question) {
  return question.memory > 0 ? question.memory : static_cast<std::int64_t>(question.cluster.device.memory.value);
}

}  // namespace paceline::perf

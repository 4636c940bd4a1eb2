#include "paceline/perf/plan_fit.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/plan_space.h"

namespace paceline::perf {
namespace {

/// On this mesh with everything that saves memory.
std::vector<Choice> frugal(const PlanQuestion& question, const Choice& mesh) {
  std::vector<Choice> made;
  for (Choice& choice : choices_on(question, mesh)) {
    const bool last = made.empty() || choice.program.micro_batches >= made.back().program.micro_batches;
    if (!last || choice.hybrid != "none" || (mesh.program.data > 1 && choice.program.zero < 3)) continue;
    choice.program.recompute = "all";
    if (!made.empty() && made.back().program.micro_batches < choice.program.micro_batches) made.clear();
    made.push_back(std::move(choice));
  }
  return made;
}

std::int64_t need_of(const PlanQuestion& question, const memory::Estimator& network, const Choice& choice) {
  memory::Plan plan = memory_plan(question, choice);
  plan.limit = memory_limit(question);  // a cut that fits, where there is one
  return memory::need_of(network, plan).bytes;
}

std::optional<SmallestNeed> least_of(const PlanQuestion& question, const memory::Estimator& network) {
  std::optional<SmallestNeed> least;
  for (const Choice& mesh : meshes(question))
    for (const Choice& choice : frugal(question, mesh))
      if (const std::int64_t bytes = need_of(question, network, choice); !least || bytes < least->bytes) least = {bytes, choice};
  return least;
}

}  // namespace

std::optional<SmallestNeed> smallest_need(const PlanQuestion& question) { return least_of(question, memory::Estimator(*question.graph)); }

std::optional<std::int64_t> smallest_cluster(const PlanQuestion& question) {
  const memory::Estimator network(*question.graph);
  PlanQuestion larger = question;
  larger.fixed.clear();
  for (std::int64_t workers = 1; workers <= kMostDevices; workers *= 2) {
    larger.workers = workers;
    larger.cluster.hosts = (workers + larger.cluster.devices - 1) / larger.cluster.devices;
    const std::optional<SmallestNeed> least = least_of(larger, network);
    if (least && least->bytes <= memory_limit(question)) return workers;
  }
  return std::nullopt;
}

std::string no_mesh_message(const PlanQuestion& question) {
  std::string fixed;
  for (const auto& [key, size] : question.fixed) fixed += fmt::format("{}{}={}", fixed.empty() ? "" : ", ", key, size);
  if (!fixed.empty())
    return fmt::format(
        "no plan for {} workers and a batch of {} has {} as fixed on the command line; leave one of these out, or choose sizes "
        "that divide the workers, the batch and the layers of {}",
        question.workers, question.batch, fixed, question.graph->network());
  std::int64_t fewer = question.workers - 1;
  for (; fewer > 1 && question.batch % fewer != 0; --fewer) {
  }
  const std::int64_t more = (question.batch + question.workers - 1) / question.workers * question.workers;
  return fmt::format("{} workers can share neither a batch of {} samples nor the {} evenly; use --batch {}, or --workers {}",
                     question.workers, question.batch, question.graph->network(), more, fewer);
}

std::string no_fit_message(const PlanQuestion& question) {
  const std::optional<SmallestNeed> least = smallest_need(question);
  const std::optional<std::int64_t> devices = smallest_cluster(question);
  std::string text =
      fmt::format("{} with a batch of {} fits no device of {} under any plan for {} workers of cluster '{}'", question.graph->network(),
                  question.batch, memory::readable(memory_limit(question)), question.workers, question.cluster.name);
  if (least) text += fmt::format("; the least is {} ({})", memory::readable(least->bytes), title_of(least->choice));
  text += devices ? fmt::format("; {} devices of this kind would do: --workers {} --batch {}", *devices, *devices, question.batch)
                  : fmt::format("; even {} devices of this kind would not do", kMostDevices);
  return text + (question.batch > 1 ? fmt::format("; a batch below {} needs less", question.batch) : "");
}

}  // namespace paceline::perf

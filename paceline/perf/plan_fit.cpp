#include "paceline/perf/plan_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/plan_floor.h"
#include "paceline/perf/plan_space.h"

namespace paceline::perf {
namespace {

std::int64_t hosts_for(const PlanQuestion& question, std::int64_t workers) {
  return (workers + question.cluster.devices - 1) / question.cluster.devices;
}

constexpr std::int64_t kMostTried = 16;  // numbers of workers to try between one that is too small and its double

/// How to change the question so that it has this many devices.
std::string advice(const PlanQuestion& question, std::int64_t devices) {
  const std::string words = fmt::format("--workers {} --batch {}", devices, question.batch);
  if (devices <= question.cluster.processes()) return fmt::format("{} devices of this kind would do: {}", devices, words);
  const std::int64_t hosts = hosts_for(question, devices);
  return fmt::format("{} devices of this kind would do, which is a cluster of {} like its {}: change its file, and use {}", devices,
                     counted(hosts, "host"), counted(question.cluster.hosts, "host"), words);
}

}  // namespace

std::optional<SmallestNeed> smallest_need(const PlanQuestion& question) {
  const memory::Estimator network(*question.graph);
  const PlanFloor floor(question);
  std::optional<SmallestNeed> least;
  for (const Choice& mesh : meshes(question)) {
    if (least && floor.of(mesh) >= least->bytes) continue;
    for (const Choice& choice : frugal_choices_on(question, mesh))
      if (const std::int64_t bytes = bytes_needed(question, network, choice); !least || bytes < least->bytes) least = {bytes, choice};
  }
  return least;
}

std::optional<std::int64_t> smallest_cluster(const PlanQuestion& question) {
  const PlanFloor floor(question);
  const std::int64_t devices = question.cluster.devices;
  auto fits = [&, larger = question](std::int64_t workers) mutable {
    larger.workers = workers;
    return floor.any_fits(all_meshes(larger));
  };
  std::int64_t unit = 1;  // the product of the fixed sizes
  for (const char* axis : {"data", "pipeline", "tensor"})
    if (const auto found = question.fixed.find(axis); found != question.fixed.end()) unit *= found->second;
  // Doubles the number until something fits, and then searches for the smallest number in between; above one host, only whole hosts.
  std::int64_t few = 0, enough = unit;
  while (enough <= kMostDevices && !fits(enough)) few = enough, enough *= 2;
  if (enough > kMostDevices) return std::nullopt;
  const std::int64_t whole = few >= devices ? std::lcm(unit, devices) : unit;
  const std::int64_t step = whole * std::max<std::int64_t>((enough - few) / whole / kMostTried, 1);
  for (std::int64_t workers = few / whole * whole + step; workers < enough; workers += step)
    if (fits(workers)) return workers;
  return enough;
}

std::string no_mesh_message(const PlanQuestion& question) {
  std::string fixed;
  for (const auto& [key, size] : question.fixed) fixed += fmt::format("{}{}={}", fixed.empty() ? "" : ", ", key, size);
  if (!fixed.empty())
    return fmt::format(
        "no plan for {} and a batch of {} has {} as fixed on the command line; leave one of these out, or choose sizes "
        "that divide the workers, the batch and the layers of {}",
        counted(question.workers, "worker"), question.batch, fixed, question.graph->network());
  std::int64_t fewer = question.workers - 1;
  for (; fewer > 1 && question.batch % fewer != 0; --fewer) {
  }
  const std::int64_t more = (question.batch + question.workers - 1) / question.workers * question.workers;
  return fmt::format("{} can share neither a batch of {} samples nor the {} evenly; use --batch {}, or --workers {}",
                     counted(question.workers, "worker"), question.batch, question.graph->network(), more, fewer);
}

std::string no_fit_message(const PlanQuestion& question) {
  const std::optional<SmallestNeed> least = smallest_need(question);
  const std::optional<std::int64_t> devices = smallest_cluster(question);
  std::string text =
      fmt::format("{} with a batch of {} fits no device of {} under any plan for {} of cluster '{}'", question.graph->network(),
                  question.batch, memory::readable(memory_limit(question)), counted(question.workers, "worker"), question.cluster.name);
  if (least) text += fmt::format("; the least is {} ({})", memory::readable(least->bytes), title_of(least->choice));
  text += devices ? "; " + advice(question, *devices) : fmt::format("; even {} devices of this kind would not do", kMostDevices);
  return text + (question.batch > 1 ? fmt::format("; a batch below {} needs less", question.batch) : "");
}

}  // namespace paceline::perf

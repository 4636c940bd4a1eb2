#include "paceline/memory/fit.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"

namespace paceline::memory {
namespace {

constexpr int kMostRanks = 1024;

/// What a recipe would say to get from one plan to another.
std::string settings_between(const Plan& before, const Plan& after) {
  std::vector<std::string> words;
  if (after.data != before.data) words.push_back(fmt::format("parallel.data={}", after.data));
  if (after.pipeline != before.pipeline) words.push_back(fmt::format("parallel.pipeline={}", after.pipeline));
  if (after.tensor != before.tensor) words.push_back(fmt::format("parallel.tensor={}", after.tensor));
  if (after.zero != before.zero) words.push_back(fmt::format("parallel.zero={}", after.zero));
  if (after.recompute != before.recompute) words.push_back("train.recompute=" + after.recompute);
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> recomputations(const Plan& plan) {
  if (plan.recompute == "none") return {"none", "units", "all"};
  if (plan.recompute == "units") return {"units", "all"};
  return {"all"};
}

/// Stages and recomputations on one mesh, the cheapest first.
std::vector<Plan> on_mesh(const Plan& plan) {
  std::vector<Plan> plans;
  for (int zero = plan.zero; zero <= (plan.data > 1 ? 3 : plan.zero); ++zero)
    for (const std::string& recompute : recomputations(plan)) {
      Plan& made = plans.emplace_back(plan);
      made.zero = zero, made.recompute = recompute;
    }
  std::ranges::stable_sort(plans, {}, [&](const Plan& made) { return (made.zero != plan.zero) + (made.recompute != plan.recompute); });
  return plans;
}

/// Everything that is tried, the nearest first.
std::vector<Plan> candidates(const Plan& plan) {
  std::vector<Plan> plans = on_mesh(plan);
  const int ranks = plan.hybrid == "none" ? plan.ranks() : 0;  // a hybrid goes with the data axis alone
  for (int tensor = 1; tensor <= ranks; ++tensor)
    for (int pipeline = 1; pipeline * tensor <= ranks; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0 || (tensor == plan.tensor && pipeline == plan.pipeline)) continue;
      Plan mesh = plan;
      mesh.tensor = tensor, mesh.pipeline = pipeline, mesh.data = ranks / tensor / pipeline;
      mesh.samples = plan.samples * plan.data / mesh.data;
      for (Plan& made : on_mesh(mesh)) plans.push_back(std::move(made));
    }
  for (int data = 2 * plan.data; data * plan.pipeline * plan.tensor <= kMostRanks; data *= 2) {
    Plan more = plan;
    more.data = data, more.samples = std::max<std::int64_t>(plan.samples * plan.data / data, 1);
    more.micro_batches = std::min(plan.micro_batches, more.samples);
    for (Plan& made : on_mesh(more)) plans.push_back(std::move(made));
  }
  return plans;
}

}  // namespace

Need need_of(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages) {
  return need_of(Estimator(graph), plan, stages);
}

Need need_of(const Estimator& network, const Plan& plan, const std::vector<graph::Units>& stages) {
  const std::vector<RankKind> kinds = network.estimate(plan, stages);
  const RankKind& most = largest(kinds);
  Need need{.bytes = most.bytes.total(), .rank = most.name};
  for (std::size_t i = 0; i < kCategories; ++i)
    if (static_cast<Category>(i) != Category::host && most.bytes.of[i] > need.of_category)
      need.category = static_cast<Category>(i), need.of_category = most.bytes.of[i];
  return need;
}

std::optional<Change> nearest_fit(const graph::Graph& graph, const Plan& plan, std::int64_t limit) {
  const Estimator network(graph);
  for (const Plan& candidate : candidates(plan)) {
    try {
      for (const graph::Parameter& parameter : graph.parameters())
        if (parameter.spread) graph::check_experts(parameter.shape[0], candidate.data);
      if (const std::int64_t bytes = need_of(network, candidate).bytes; bytes <= limit)
        return Change{settings_between(plan, candidate), bytes};
    } catch (const ConfigError&) {  // heads, channels or experts that cannot be shared so, more stages than units
    }
  }
  return std::nullopt;
}

void require_fit(const graph::Graph& graph, const Plan& plan, std::int64_t limit, const std::string& source,
                 const std::vector<graph::Units>& stages) {
  const Need need = need_of(graph, plan, stages);
  if (need.bytes <= limit) return;
  const std::optional<Change> change = nearest_fit(graph, plan, limit);
  throw ConfigError(fmt::format("'{}' needs {} on {}, but {} allows {}; the largest part is {}, {}. {}", graph.network(),
                                readable(need.bytes), need.rank, source, readable(limit), name_of(need.category),
                                readable(need.of_category),
                                change ? fmt::format("{} needs {}", change->settings, readable(change->bytes))
                                       : std::string("No mesh of up to 1024 ranks fits; use a smaller model, or a smaller data.batch")));
}

}  // namespace paceline::memory

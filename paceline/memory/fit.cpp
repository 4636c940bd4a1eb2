#include "paceline/memory/fit.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"

namespace paceline::memory {
namespace {

constexpr int kMostRanks = 1024;

int axes_between(const Plan& before, const Plan& after) {
  return (after.data != before.data) + (after.pipeline != before.pipeline) + (after.tensor != before.tensor);
}

std::string mesh_of(const Plan& plan) {
  std::string text = fmt::format("data={}", plan.data);
  if (plan.pipeline > 1) text += fmt::format(",pipeline={}", plan.pipeline);
  if (plan.tensor > 1) text += fmt::format(",tensor={}", plan.tensor);
  return text;
}

/// The flags and settings that turn one plan into another. A mesh is written out, and so is the number of workers if it changes: as flags,
/// they override the recipe.
std::string settings_between(const Plan& before, const Plan& after) {
  std::vector<std::string> words;
  if (after.ranks() != before.ranks()) words.push_back(fmt::format("--workers {}", after.ranks()));
  if (axes_between(before, after) > 0) words.push_back("--mesh " + mesh_of(after));
  if (after.zero != before.zero) words.push_back(fmt::format("parallel.zero={}", after.zero));
  if (after.recompute != before.recompute) words.push_back("train.recompute=" + after.recompute);
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> recomputations(const Plan& plan) {
  if (plan.recompute == "none") return {"none", "units", "all"};
  if (plan.recompute == "units") return {"units", "all"};
  return {"all"};
}

/// The numbers of ranks to try: that of the plan, multiplied by 2ⁿ and 3·2ⁿ.
std::vector<int> rank_counts(int ranks) {
  std::vector<int> counts = {ranks};
  for (int power = 2; power * ranks <= kMostRanks; power *= 2) {
    counts.push_back(power * ranks);
    if (power / 2 * 3 * ranks <= kMostRanks) counts.push_back(power / 2 * 3 * ranks);
  }
  return counts;
}

std::vector<Plan> meshes(const Plan& plan, int ranks) {
  const int most = plan.hybrid == "none" ? ranks : 1;  // a hybrid only works with the data axis
  const std::int64_t batch = plan.batch > 0 ? plan.batch : plan.samples * plan.data;
  std::vector<Plan> plans;
  for (int tensor = 1; tensor <= most; ++tensor)
    for (int pipeline = 1; pipeline * tensor <= most; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0) continue;
      Plan& mesh = plans.emplace_back(plan);
      mesh.tensor = tensor, mesh.pipeline = pipeline, mesh.data = ranks / tensor / pipeline;
      mesh.samples = std::max<std::int64_t>((batch + mesh.data - 1) / mesh.data, 1);
      mesh.micro_batches = std::min(plan.micro_batches, mesh.samples);
    }
  return plans;
}

/// All candidates, the nearest first: on the same ranks, then on more ranks, with the smallest change first.
std::vector<Plan> candidates(const Plan& plan) {
  std::vector<Plan> plans;
  for (const int ranks : rank_counts(plan.ranks()))
    for (const Plan& mesh : meshes(plan, ranks))
      for (int zero = plan.zero; zero <= (mesh.data > 1 ? 3 : plan.zero); ++zero)
        for (const std::string& recompute : recomputations(plan)) {
          Plan& made = plans.emplace_back(mesh);
          made.zero = zero, made.recompute = recompute;
        }
  const auto distance = [&](const Plan& made) {
    return std::pair(made.ranks(), axes_between(plan, made) + (made.zero != plan.zero) + (made.recompute != plan.recompute));
  };
  std::ranges::stable_sort(plans, {}, distance);
  return plans;
}

/// Ranks that share memory may need different amounts of it.
bool fits(const Need& need, const Limit& limit, int ranks) { return (limit.places > 0 ? need.mean : need.bytes) <= limit.of_rank(ranks); }

}  // namespace

Need need_of(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages) {
  return need_of(Estimator(graph), plan, stages);
}

Need need_of(const Estimator& network, const Plan& plan, const std::vector<graph::Units>& stages) {
  const std::vector<RankKind> kinds = network.estimate(plan, stages);
  const RankKind& most = largest(kinds);
  Need need{.bytes = most.bytes.total(), .rank = most.name};
  for (const RankKind& kind : kinds) need.mean += kind.bytes.total() * kind.ranks / plan.ranks();
  for (std::size_t i = 0; i < kCategories; ++i)
    if (static_cast<Category>(i) != Category::host && most.bytes.of[i] > need.of_category)
      need.category = static_cast<Category>(i), need.of_category = most.bytes.of[i];
  return need;
}

std::optional<Change> nearest_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const Settle& settle) {
  const Estimator network(graph);
  for (const Plan& candidate : candidates(plan)) {
    try {
      const Settled settled = settle ? settle(candidate) : Settled{candidate};
      for (const graph::Parameter& parameter : graph.parameters())
        if (parameter.spread) graph::check_experts(parameter.shape[0], candidate.data);
      const Need need = need_of(network, settled.plan);
      if (!fits(need, limit, candidate.ranks())) continue;
      std::string settings = settings_between(plan, candidate);
      if (!settled.also.empty()) settings += " " + settled.also;
      return Change{std::move(settings), need.bytes};
    } catch (const ConfigError&) {  // such a run would be refused
    }
  }
  return std::nullopt;
}

void require_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const std::vector<graph::Units>& stages,
                 const Settle& settle) {
  const Need need = need_of(graph, plan, stages);
  if (fits(need, limit, plan.ranks())) return;
  const std::optional<Change> change = nearest_fit(graph, plan, limit, settle);
  const int sharing = limit.sharing(plan.ranks());
  throw ConfigError(fmt::format(
      "'{}' needs {} on {}, but {} allows {}{}; the largest part is {}, {}. {}", graph.network(), readable(need.bytes), need.rank,
      limit.source, readable(limit.of_rank(plan.ranks())),
      sharing > 1 ? fmt::format(" for each of the {} ranks that share it", sharing) : "", name_of(need.category),
      readable(need.of_category),
      change ? fmt::format("With {} it needs {}", change->settings, readable(change->bytes))
             : fmt::format("No mesh, ZeRO stage and recomputation that this run accepts was found to fit, on up to {} ranks; use a smaller "
                           "model, or a smaller data.batch",
                           std::max(kMostRanks, plan.ranks()))));
}

}  // namespace paceline::memory

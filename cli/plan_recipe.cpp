#include "plan_recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "network_word.h"
#include "paceline/base/error.h"

namespace paceline::cli {
namespace {

/// Settings that a plan decides itself. The mesh sizes, the ZeRO stage and micro-batches are not among them.
constexpr std::string_view kNotKept[] = {"strategy.bucket_mb", "strategy.overlap", "strategy.update",    "parallel.schedule",
                                         "parallel.chunks",    "parallel.hybrid",  "parallel.sequence",  "train.recompute",
                                         "comm.compression",   "comm.algorithm",   "comm.gradient_dtype"};

}  // namespace

bool says(const std::vector<std::string>& words, const std::string& key) {
  return std::ranges::any_of(words, [&](const std::string& word) { return word.starts_with(key + "="); });
}

std::vector<std::string> plan_words(const std::vector<std::string>& words) {
  std::vector<std::string> made;
  for (const std::string& word : words)
    if (names_network(word)) made.insert(made.end(), {"model.network=" + word, "optim.name=adamw", "data.name=random"});
  for (const std::string& word : words)
    if (!names_network(word)) made.push_back(word);
  return made;
}

std::vector<std::string> data_words(const graph::Graph& graph, const std::vector<std::string>& words) {
  if (!is_by_itself(words) || std::ranges::none_of(words, names_network)) return {};
  const graph::Shape& input = graph.input();
  if (input.size() == 1) return {"data.name=text", fmt::format("data.context={}", input[0])};
  return {fmt::format("data.shape=[{}]", fmt::join(input, ",")), fmt::format("data.classes={}", graph.output().back())};
}

std::map<std::string, std::int64_t> fixed_sizes(const std::vector<std::string>& words, const train::Recipe& recipe) {
  std::map<std::string, std::int64_t> sizes;
  const auto add = [&](const std::string& key, const std::string& name, std::int64_t value) {
    if (says(words, key) && value > 0) sizes[name] = value;
  };
  add("parallel.data", "data", recipe.parallel.data), add("parallel.pipeline", "pipeline", recipe.parallel.pipeline);
  add("parallel.tensor", "tensor", recipe.parallel.tensor), add("train.micro_batches", "micro_batches", recipe.train.micro_batches);
  if (says(words, "parallel.zero")) sizes["zero"] = recipe.parallel.zero;
  return sizes;
}

void refuse_not_kept(const std::vector<std::string>& words, const train::Recipe& recipe) {
  if (says(words, "strategy.name") && !strategies::makes_steps_together(recipe.strategy.name))
    throw ConfigError(fmt::format(
        "strategy.name={0}: the planner compares strategies itself, and lists those that compute something else than one worker would in a "
        "second table; leave the key out, or simulate this strategy alone: paceline simulate … strategy.name={0}",
        recipe.strategy.name));
  if (says(words, "parallel.offload") && recipe.parallel.offload)
    throw ConfigError(
        "parallel.offload=true: no plan keeps state in the host's memory, so the planner cannot compare one that does; leave the key out, "
        "or "
        "simulate one configuration: paceline simulate … parallel.offload=true");
  for (const std::string_view key : kNotKept)
    if (says(words, std::string(key)))
      throw ConfigError(
          fmt::format("{}: the planner chooses this; only parallel.data, parallel.pipeline, parallel.tensor, parallel.zero and "
                      "train.micro_batches can be fixed. Leave the key out, or simulate one configuration: paceline simulate … {}=…",
                      key, key));
}

std::vector<std::string> notes_on(const train::Recipe& recipe) {
  std::vector<std::string> notes;
  if (!strategies::makes_steps_together(recipe.strategy.name))
    notes.push_back(fmt::format("the recipe's strategy.name={} is ignored: the planner chooses the strategy", recipe.strategy.name));
  if (recipe.comm.compression != "none")
    notes.push_back(fmt::format("the first table ignores the recipe's comm.compression={}", recipe.comm.compression));
  if (recipe.parallel.offload) notes.emplace_back("no plan has the recipe's parallel.offload=true: the planner does not try it");
  return notes;
}

}  // namespace paceline::cli

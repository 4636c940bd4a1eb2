#include "network_word.h"

#include <algorithm>
#include <filesystem>

#include "paceline/graph/registry.h"
#include "paceline/train/from_recipe.h"

namespace paceline::cli {
namespace {

/// The settings that determine what a sample is.
constexpr std::string_view kSampleKeys[] = {"data.name=", "data.shape=", "data.classes=", "data.context=", "data.image_size="};

bool says_data(const std::string& word) {
  return std::ranges::any_of(kSampleKeys, [&](std::string_view key) { return word.starts_with(key); });
}

}  // namespace

bool names_network(const std::string& word) {
  return std::ranges::any_of(graph::networks(), [&](const auto& row) { return row.key == word; });
}

void refuse_unknown_networks(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const bool is_setting = word.find('=') != std::string::npos, is_path = word.find('/') != std::string::npos || word.ends_with(".toml");
    if (std::error_code ignored; !is_setting && !is_path && !std::filesystem::exists(word, ignored))
      find(graph::networks(), "network", word);
  }
}

graph::Graph network_for_data(const train::Recipe& recipe) {
  if (!data::kind_of(recipe.data).is_noise) return train::graph_for(recipe.model, train::make_datasets(recipe).training->info());
  data::Info info;
  info.key = recipe.data.name, info.input = recipe.data.shape, info.classes = recipe.data.classes;
  return train::graph_for(recipe.model, info);
}

bool is_by_itself(const std::vector<std::string>& words) {
  const auto is_own = [](const std::string& word) { return names_network(word) || word.starts_with("model.input="); };
  return std::ranges::any_of(words, is_own) && std::ranges::none_of(words, says_data);
}

graph::Graph network_of(const train::Recipe& recipe, const std::vector<std::string>& words) {
  return is_by_itself(words) ? graph::make_graph(recipe.model) : network_for_data(recipe);
}

}  // namespace paceline::cli

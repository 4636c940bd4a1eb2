#include "verify_learn.h"

#include <filesystem>
#include <map>

#include "command.h"
#include "network_word.h"
#include "paceline/perf/run_steps.h"
#include "paceline/train/predicted_time.h"
#include "paceline/train/step_correction.h"
#include "paceline/train/workers.h"

namespace paceline::cli {

std::vector<std::string> learn_steps(const std::vector<observe::VerifiedRun>& runs) {
  std::map<std::string, std::vector<perf::RunStep>> steps;  // by file
  for (const observe::VerifiedRun& run : runs) {
    train::Recipe recipe;
    Config config = recipe.config();
    read_settings(config, {(std::filesystem::path(run.run) / "recipe.toml").string()});
    recipe = train::resolve_for(recipe, {});
    const graph::Graph graph = network_for_data(recipe);
    steps[perf::steps_file(train::predicted_source(recipe))].push_back(train::run_step(recipe, graph, run.measured_s));
  }
  std::vector<std::string> files;
  for (const auto& [file, fresh] : steps) perf::keep_steps(file, fresh), files.push_back(file);
  return files;
}

}  // namespace paceline::cli

// What commands on a trained network share: the run, and settings that override its recipe.
#pragma once

#include "command.h"
#include "paceline/train/trained_run.h"

namespace paceline::cli {

struct TrainedFlags {
  std::string run;
  std::vector<std::string> settings;
  bool json = false;
};

/// Adds RUN and --json.
inline void add_trained_flags(CLI::App& app, TrainedFlags& flags) {
  app.add_option("RUN", flags.run, "a run folder (its newest intact checkpoint is used) or a checkpoint")->required();
  add_json_flag(app, flags.json);
}

/// The network of the run that the flags name, on other data or another device if the settings say so. ConfigError if an argument is not a
/// setting.
inline train::TrainedRun open_trained(const TrainedFlags& flags) {
  for (const std::string& word : flags.settings)
    if (!is_assignment(word))
      throw ConfigError("'" + word + "' is not a setting; expected section.key=value, for example data.root=DIR or train.device=cpu");
  return {flags.run, [&](Config& config) { read_settings(config, flags.settings); }};
}

}  // namespace paceline::cli

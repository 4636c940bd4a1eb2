// What commands on a trained network share: the run, and settings that override its recipe.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "paceline/observe/elapsed_line.h"
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

/// Says how far a command is whose results are printed as they are made. On a terminal the first result takes the line's place; in a file
/// or a pipe, and with --json, the line stays until the end.
class ProgressUntilShown {
 public:
  ProgressUntilShown(const std::string& what, bool json) : line_(std::in_place, what), stays_(json || ::isatty(STDOUT_FILENO) == 0) {}

  void say(const std::string& progress) {
    if (stays_) line_->say(progress);
    else line_.reset();
  }

 private:
  std::optional<observe::ElapsedLine> line_;
  bool stays_;
};

/// The network of the run that the flags name, on other data or another device if the settings say so. ConfigError if an argument is not a
/// setting.
inline train::TrainedRun open_trained(const TrainedFlags& flags) {
  for (const std::string& word : flags.settings)
    if (!is_assignment(word))
      throw ConfigError("'" + word + "' is not a setting; expected section.key=value, for example data.root=DIR or train.device=cpu");
  return observe::patiently("reading " + flags.run,
                            [&] { return train::TrainedRun(flags.run, [&](Config& config) { read_settings(config, flags.settings); }); });
}

}  // namespace paceline::cli

// Turns the command line of `paceline train` into a plan: the recipe, the checkpoint to resume from, and the folder to write to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "paceline/comm/world.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {

struct TrainFlags {
  std::vector<std::string> words;  // the recipe and the assignments
  std::int64_t workers = 0, seed = -1;
  std::string resume, join, key_file;
  bool json = false, quiet = false, print_recipe = false;
};

void add_train_flags(CLI::App& app, TrainFlags& flags);

struct TrainPlan {
  train::Recipe recipe;
  std::optional<std::pair<std::filesystem::path, train::Checkpoint>> resume_from;
  std::optional<observe::RunFolder> folder;  // where this process writes; nothing: a new one, or others write
  std::optional<observe::RunLock> lock;

  /// Before its checkpoint is chosen: whoever still trains there may write a later one, and end.
  void write_in(observe::RunFolder chosen);
};

/// A process that a launcher has started again takes up the run that it was in the middle of, as --resume would, and worker 0 says so.
TrainPlan make_plan(const TrainFlags& flags, const comm::World& launched);

}  // namespace paceline::cli

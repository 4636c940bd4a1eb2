// Turns the command line of a program that trains into a plan: the recipe, the checkpoint to resume from, and the folder to write to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "paceline/comm/world.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/program/command_line.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/recipe.h"

namespace paceline::program {

/// The settings of a run that neither recipe file nor command line changes; `words` are the arguments.
using Defaults = std::function<train::Recipe(const std::vector<std::string>& words)>;

/// The built-in demonstration; if the arguments name a recipe file, the plain defaults of every key.
train::Recipe demonstration(const std::vector<std::string>& words);

struct TrainFlags {
  Defaults defaults = demonstration;
  std::vector<std::string> words;  // the recipe and the settings
  std::int64_t workers = 0, seed = -1;
  std::string mesh, resume, join, key_file;
  bool json = false, quiet = false, print_recipe = false;
};

void add_train_flags(CLI::App& app, TrainFlags& flags);

/// Sets the sizes that --mesh gives. ConfigError if a key among `words`, which `parallel` has, says another size.
void set_mesh(train::ParallelConfig& parallel, const std::string& mesh, const std::vector<std::string>& words);

struct TrainPlan {
  train::Recipe recipe;
  std::optional<train::FoundCheckpoint> resume_from;
  std::optional<observe::RunFolder> folder;  // where this process writes; nullopt: in a new folder, or other processes write
  std::optional<observe::RunLock> lock;

  /// Taken before the checkpoint is chosen: a process that still trains there may write a later one before it ends.
  void write_in(observe::RunFolder chosen);
};

/// A process that was restarted by a launcher resumes the run that it was in, as --resume would; worker 0 says so.
TrainPlan make_plan(const TrainFlags& flags, const comm::World& launched);

/// Throws ConfigError if this many processes, of which `servers` are parameter servers, could not run `paceline train` with these
/// arguments. For a launcher, before it starts any process. Data and devices are checked where the processes run.
void check_train(std::vector<std::string> words, int processes, int servers);

}  // namespace paceline::program

#include "paceline/program/train_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/base/text.h"
#include "paceline/observe/step_count.h"
#include "paceline/train/remote_processes.h"
#include "paceline/train/workers.h"

namespace paceline::program {
namespace {

using observe::RunFolder;

/// The recipe in a checkpoint that --resume names.
struct SavedRecipe {
  std::string text, source;
};

/// Whether the command line sets a section or key.
bool speaks_of(const std::vector<std::string>& words, std::string_view beginning) {
  return std::ranges::any_of(words, [&](const std::string& word) { return word.starts_with(beginning); });
}

/// A checkpoint does not depend on the mesh under which it was written. If that mesh does not fit the requested number of workers, they
/// share the data; if it does not fit the requested axes, the number of workers follows from those.
void fit_mesh(train::ParallelConfig& parallel, const TrainFlags& flags, int processes) {
  const std::int64_t workers = parallel.workers > 0 ? parallel.workers : processes, product = parallel.workers_of_mesh();
  const bool has_rest = parallel.data == 0 || parallel.pipeline == 0 || parallel.tensor == 0;
  if (has_rest ? workers % product == 0 : workers == product) return;
  const bool asks_for_workers = processes > 1 || flags.workers > 0 || speaks_of(flags.words, "parallel.workers=");
  if (!asks_for_workers) parallel.workers = 0;
  else if (flags.mesh.empty() && !speaks_of(flags.words, "parallel.data=")) parallel.data = 0;
}

/// Combines the program's defaults, a recipe file or a checkpoint, and the command line; later ones override earlier ones. `in_place`: the
/// run is resumed in its own folder. `servers`: a launcher has started servers and workers, each as a separate process.
train::Recipe read_recipe(const TrainFlags& flags, int processes, bool servers, const std::optional<SavedRecipe>& from,
                          const RunFolder* in_place) {
  train::Recipe recipe = flags.defaults(flags.words);
  Config config = recipe.config();
  if (from) {
    config.load_text(from->text, from->source);
    // As many workers as before, for the same bits; under a launcher, as many as it started, unless the command line says otherwise.
    if (servers || processes > 1) recipe.parallel.workers = 0;
  }
  const train::Recipe saved = recipe;
  read_settings(config, flags.words);
  if (from && recipe.model.weights != saved.model.weights)
    throw ConfigError("--resume takes the weights from the checkpoint; leave model.weights out");
  if (in_place != nullptr && (recipe.train.name != saved.train.name || recipe.train.runs != saved.train.runs))
    throw ConfigError(
        fmt::format("{} continues in its own folder; leave out train.name and train.runs, or resume from a copy of its checkpoint",
                    in_place->path().string()));
  if (!flags.mesh.empty()) {
    set_mesh(recipe.parallel, flags.mesh, flags.words);
    if (!speaks_of(flags.words, "parallel.workers=")) recipe.parallel.workers = 0;  // as many workers as the mesh has
  }
  if (flags.workers > 0) recipe.parallel.workers = flags.workers;
  if (flags.seed >= 0) recipe.train.seed = flags.seed;
  if (from) fit_mesh(recipe.parallel, flags, processes);
  // A checkpoint of one worker, or of a mesh with one along the data axis, says `single`, whatever its recipe said. With several workers
  // that becomes `auto`, unless the command line asks for `single`.
  const std::int64_t workers = recipe.parallel.workers > 0 ? recipe.parallel.workers : recipe.parallel.workers_of_mesh();
  if (from && strategies::is_alone(saved.strategy.name) && !speaks_of(flags.words, "strategy.name=") &&
      std::max<std::int64_t>(workers, processes) > 1)
    recipe.strategy.name = strategies::kAuto;
  return recipe;
}

/// A checkpoint in a run's folder is resumed in that folder.
std::optional<RunFolder> run_around(const std::filesystem::path& resumed) {
  const auto files = train::list_checkpoints(resumed);
  if (files.empty()) return std::nullopt;
  const auto checkpoints = std::filesystem::absolute(files.front()).parent_path();
  return checkpoints.filename() == "checkpoints" ? std::optional(RunFolder::open(checkpoints.parent_path())) : std::nullopt;
}

/// The run that contains what --resume names, if it is this job's own: the checkpoint itself may have been pruned since the first start.
std::optional<RunFolder> own_run_around(const std::string& resumed, const std::string& job) {
  const auto named = std::filesystem::absolute(resumed);
  for (const auto& folder : {named, named.parent_path(), named.parent_path().parent_path()})
    if (std::filesystem::is_directory(folder))
      if (const RunFolder run = RunFolder::open(folder); run.is_of(job)) return run;
  return std::nullopt;
}

/// Steps are counted in a file of the run's folder, so that the number is exact even after a kill.
void tell_of_restart(const RunFolder& run, const TrainPlan& plan, int restarts) {
  const std::int64_t kept = plan.resume_from ? plan.resume_from->second.position.step : 0;
  const std::int64_t behind = std::max<std::int64_t>(observe::StepCount::read(run.path()) - kept, 0);
  const std::string from = plan.resume_from ? fmt::format("resumes from step {} ({})", kept, plan.resume_from->first.filename().string())
                                            : std::string("starts again from step 0, because it has no checkpoint yet");
  const ps::Cluster cluster = ps::discover();
  const bool in_journal = cluster.role == ps::Cluster::Role::server && train::recipe_for(plan.recipe, cluster).ps.replica;
  log::warning("restart {}: {} {}; {} {} {}", restarts, run.path().string(), from, plural(behind, "step"), behind == 1 ? "is" : "are",
               in_journal ? "after that in the journal" : "lost");
}

/// The recipe of the newest checkpoint that can be opened; whether the rest of it is intact is found out when it is loaded.
std::optional<SavedRecipe> saved_recipe(const std::string& resumed) {
  for (const auto& file : train::list_checkpoints(resumed)) try {
      return SavedRecipe{train::read_checkpoint(file, train::Check::structure).recipe, file.string()};
    } catch (const DataError&) {  // tries the next one
    }
  return std::nullopt;
}

/// Every process opens the checkpoint, and one of them reads all of it; the others use the one that it chose (Workers::resume).
train::Check check_of(const comm::World& launched) { return launched.rank == 0 ? train::Check::everything : train::Check::structure; }

}  // namespace

// The default momentum, and a rate to match it, are too much for stale gradients. Anyone who sets a key of [optim] keeps the usual
// defaults.
train::Recipe demonstration(const std::vector<std::string>& words) {
  if (names_recipe(words)) return {};
  train::Recipe recipe = train::Recipe::demonstration(), asked = recipe;
  Config config = asked.config();
  read_settings(config, words);
  if (!speaks_of(words, "optim.") && asked.servers() && asked.servers()->has_stale_gradients())
    recipe.optim.momentum = 0, recipe.optim.rate = 0.05;
  return recipe;
}

void set_mesh(train::ParallelConfig& parallel, const std::string& mesh, const std::vector<std::string>& words) {
  const comm::MeshSizes sizes = comm::parse_mesh(mesh);
  const auto set = [&](comm::Axis axis, int size, std::int64_t& key) {
    const std::string_view name = comm::name_of(axis);
    if (speaks_of(words, fmt::format("parallel.{}=", name)) && key != size)
      throw ConfigError(
          fmt::format("--mesh {} says {}={}, but parallel.{}={} is given too; leave one of them out", mesh, name, size, name, key));
    key = size;
  };
  set(comm::Axis::data, sizes.data, parallel.data);
  set(comm::Axis::pipeline, sizes.pipeline, parallel.pipeline);
  set(comm::Axis::tensor, sizes.tensor, parallel.tensor);
}

void TrainPlan::write_in(RunFolder chosen) {
  lock.emplace(chosen);
  folder = std::move(chosen);
}

TrainPlan make_plan(const TrainFlags& flags, const comm::World& launched) {
  const bool resumes = !flags.resume.empty();
  if (resumes && names_recipe(flags.words)) throw ConfigError("--resume takes the recipe from the checkpoint; leave the recipe file out");
  const ps::Cluster cluster = ps::discover();
  const bool trains = !flags.print_recipe && flags.join.empty() && cluster.leads(), writes = trains && launched.rank == 0;
  const bool again = launched.restarts > 0;

  TrainPlan plan;
  std::optional<RunFolder> interrupted = again && resumes ? own_run_around(flags.resume, launched.run) : std::nullopt;
  std::optional<SavedRecipe> saved;
  if (resumes) {
    if (std::optional<RunFolder> run = interrupted || !writes ? interrupted : run_around(flags.resume); run && writes)
      plan.write_in(std::move(*run));
    plan.resume_from =
        train::newest_good_checkpoint(interrupted ? interrupted->path() : std::filesystem::path(flags.resume), check_of(launched));
    saved = SavedRecipe{plan.resume_from->second.recipe, plan.resume_from->first.string()};
  }
  plan.recipe = read_recipe(flags, launched.size, cluster.role != ps::Cluster::Role::none, saved, plan.folder ? &*plan.folder : nullptr);
  if (trains && again && !interrupted && (interrupted = RunFolder::find(plan.recipe.train.runs, launched.run))) {
    if (writes) plan.write_in(*interrupted);
    const auto run = interrupted->path();
    if (!train::list_checkpoints(run).empty()) plan.resume_from = train::newest_good_checkpoint(run, check_of(launched));
  }
  if (interrupted && writes) tell_of_restart(*interrupted, plan, launched.restarts);
  return plan;
}

void check_train(std::vector<std::string> words, int processes, int servers) {
  CLI::App app("", "paceline");
  TrainFlags flags;
  add_train_flags(app, flags);
  try {
    parse_words(app, std::move(words));
  } catch (const CLI::Success&) {
    return;  // the ranks print the --help
  } catch (const CLI::ParseError& error) {
    throw ConfigError(parse_problem(error, app));
  }
  const std::optional<SavedRecipe> saved = flags.resume.empty() ? std::nullopt : saved_recipe(flags.resume);
  if (!flags.resume.empty() && !saved) return;  // the ranks report what is wrong with it
  comm::World world;
  world.source = "paceline run";
  if (servers == 0) world.size = world.local_size = processes;
  train::Recipe recipe = read_recipe(flags, world.size, servers > 0, saved, nullptr);
  ps::Cluster cluster;
  if (servers > 0) cluster.role = ps::Cluster::Role::server, cluster.index = 0, cluster.workers = processes - servers;
  cluster.servers.resize(static_cast<std::size_t>(servers));
  train::resolve_for(train::recipe_for(recipe, cluster), world);
}

void add_train_flags(CLI::App& app, TrainFlags& flags) {
  app.add_option("RECIPE", flags.words, "a recipe file, and settings as section.key=value, which override the file");
  app.add_option("-n,--workers", flags.workers, "number of workers (parallel.workers)")->check(whole_number(1));
  app.add_option("--mesh", flags.mesh,
                 "sizes of the mesh, for example data=2,pipeline=2,tensor=2; 0: the remaining workers. It replaces parallel.data, "
                 "parallel.pipeline and parallel.tensor of the recipe; keys on the command line must not contradict it")
      ->type_name(kMesh)
      ->check([](const std::string& text) {
        try {
          comm::parse_mesh(text);
          return std::string();
        } catch (const ConfigError& error) {
          return std::string(error.what());
        }
      });
  app.add_option("--seed", flags.seed, "seed of the run (train.seed)")->check(whole_number(0));
  app.add_option("--resume", flags.resume, "continue a run from its folder or from a checkpoint")
      ->type_name(kFolderOrFile)
      ->check([](const std::string& text) {
        return text.empty() ? std::string("is empty; name a run folder or a checkpoint") : std::string();
      });
  app.add_option("--join", flags.join,
                 "join a run with ps.executor=processes as an additional worker: host:port of all its servers, separated by commas")
      ->type_name("ADDRESS,...");
  app.add_option("--key-file", flags.key_file,
                 "with --join: the file of the job's key, RUN/servers/key (default: the key in $PACELINE_JOB)")
      ->type_name(kFile);
  app.add_flag("--print-recipe", flags.print_recipe, "print the resolved recipe and exit");
  app.add_flag("--quiet", flags.quiet, "show no progress");
  add_json_flag(app, flags.json);
}

}  // namespace paceline::program

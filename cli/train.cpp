// paceline train [RECIPE] [section.key=value …]
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/key_file.h"
#include "paceline/base/log.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/world.h"
#include "paceline/observe/curve.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/predictions.h"
#include "paceline/observe/progress.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/observe/summary.h"
#include "paceline/observe/tensorboard.h"
#include "paceline/observe/trace.h"
#include "paceline/strategies/central.h"
#include "paceline/train/remote.h"
#include "paceline/train/workers.h"

namespace paceline::cli {
namespace {

using observe::RunFolder;

struct TrainFlags {
  std::vector<std::string> words;  // the recipe and the assignments
  std::int64_t workers = 0, seed = -1;
  std::string resume, join, key_file;
  bool json = false, quiet = false, print_recipe = false;
};

/// What a demonstration, a recipe file, a checkpoint and the command line say, the later over the earlier.
struct Plan {
  train::Recipe recipe;
  std::optional<std::pair<std::filesystem::path, train::Checkpoint>> resume_from;
  std::optional<RunFolder> folder;  // where this process writes
  std::optional<observe::RunLock> lock;

  /// Before its checkpoint is chosen: whoever still trains there may write a later one, and end.
  void write_in(RunFolder chosen) {
    lock.emplace(chosen);
    folder = std::move(chosen);
  }
};

/// Whether the command line says anything of a section or key.
bool speaks_of(const std::vector<std::string>& words, std::string_view beginning) {
  return std::ranges::any_of(words, [&](const std::string& word) { return word.starts_with(beginning); });
}

/// The built-in one. Its momentum, and a rate for that, are too much for gradients that come late;
/// whoever says anything of [optim] is taken at his word.
train::Recipe demonstration(const std::vector<std::string>& words) {
  train::Recipe recipe = train::Recipe::demonstration(), asked = recipe;
  Config config = asked.config();
  read_settings(config, words);
  if (!speaks_of(words, "optim.") && strategies::is_asynchronous(asked.strategy.name, asked.ps))
    recipe.optim.momentum = 0, recipe.optim.rate = 0.05;
  return recipe;
}

/// A checkpoint in a run's folder goes on in that.
std::optional<RunFolder> run_around(const std::filesystem::path& resumed) {
  const auto files = train::list_checkpoints(resumed);
  if (files.empty()) return std::nullopt;
  const auto checkpoints = std::filesystem::absolute(files.front()).parent_path();
  return checkpoints.filename() == "checkpoints" ? std::optional(RunFolder::open(checkpoints.parent_path())) : std::nullopt;
}

Plan make_plan(const TrainFlags& flags, const comm::World& launched) {
  Plan plan;
  const bool has_recipe = names_recipe(flags.words);
  if (!has_recipe) plan.recipe = demonstration(flags.words);
  Config config = plan.recipe.config();
  if (!flags.resume.empty()) {
    if (has_recipe) throw ConfigError("--resume takes the recipe from the checkpoint; leave the recipe file out");
    const bool writes = !flags.print_recipe && launched.rank == 0 && flags.join.empty() && ps::discover().leads();
    if (std::optional<RunFolder> run = writes ? run_around(flags.resume) : std::nullopt) plan.write_in(std::move(*run));
    plan.resume_from = train::newest_good_checkpoint(flags.resume);
    config.load_text(plan.resume_from->second.recipe, plan.resume_from->first.string());
    // As many workers as it had, for the same bits; under a launcher as many as that started, unless somebody says otherwise.
    if (!strategies::is_centralised(plan.recipe.strategy.name) && launched.size > 1) plan.recipe.parallel.workers = 0;
  }
  const train::Recipe saved = plan.recipe;
  read_settings(config, flags.words);
  if (plan.resume_from && plan.recipe.model.weights != saved.model.weights)
    throw ConfigError("--resume takes the weights from the checkpoint; leave model.weights out");
  if (plan.folder && (plan.recipe.train.name != saved.train.name || plan.recipe.train.runs != saved.train.runs))
    throw ConfigError(fmt::format("{} goes on where it is; leave train.name and train.runs out, or resume from a copy of its checkpoint",
                                  plan.folder->path().string()));
  if (flags.workers > 0) plan.recipe.parallel.workers = flags.workers;
  if (flags.seed >= 0) plan.recipe.train.seed = flags.seed;
  // One worker's checkpoint says `single`, whatever its recipe said; for more of them that stands for `auto`, unless somebody asks for it.
  if (plan.resume_from && saved.strategy.name == "single" && !speaks_of(flags.words, "strategy.name=") &&
      std::max<std::int64_t>(plan.recipe.parallel.workers, launched.size) > 1)
    plan.recipe.strategy.name = "auto";
  return plan;
}

/// Server 0 is started again: it goes on where its run's last checkpoint stands.
void take_up_again(const ps::Cluster& cluster, Plan& plan) {
  if (cluster.role != ps::Cluster::Role::server || cluster.restarts == 0) return;
  const std::optional<RunFolder> run = RunFolder::find(cluster.runs, cluster.job);
  if (!run) return;
  plan.write_in(*run);
  if (!train::list_checkpoints(run->path()).empty()) plan.resume_from = train::newest_good_checkpoint(run->path());
}

RunFolder new_folder(const train::Recipe& recipe) {
  const std::string& name = recipe.train.name;
  return RunFolder::create(recipe.train.runs,
                           name.empty() ? RunFolder::default_name(recipe.model.network, recipe.data.name, std::time(nullptr)) : name);
}

/// A worker, or the server of a range, of a run that another process leads.
int run_remote(const train::Recipe& recipe, const ps::Cluster& cluster) {
  if (cluster.role == ps::Cluster::Role::server) train::run_remote_server(recipe, cluster, stop_requested);
  else log::info("finished {} minibatches", train::run_remote_worker(recipe, cluster, stop_requested));
  return kDone;
}

/// The processes of a parameter server: those that `paceline run --servers` or mpirun started, or one that joins them.
ps::Cluster find_cluster(const train::Recipe& recipe, const std::string& join, const std::string& key_file, const comm::World& world) {
  if (recipe.ps.transport != "mpi" || recipe.ps.executor != "processes") return join.empty() ? ps::discover() : ps::joining(join, key_file);
  if (!join.empty()) throw ConfigError("ranks of MPI neither come nor go; use ps.transport=grpc with --join");
  comm::CommConfig config = recipe.comm;
  if (config.engine == "auto") config.engine = "mpi";
  if (config.engine != "mpi") throw ConfigError(fmt::format("ps.transport=mpi with comm.engine={}; leave comm.engine out", config.engine));
  ps::Cluster cluster = ps::among(comm::connect(config, world), recipe.ps.servers);
  if (recipe.parallel.workers != 0 && recipe.parallel.workers != cluster.workers)
    throw ConfigError(fmt::format("{} workers are wanted, and of {} ranks {} serve; use mpirun -np {}", recipe.parallel.workers, world.size,
                                  recipe.ps.servers, recipe.parallel.workers + recipe.ps.servers));
  return cluster;
}

/// Where to look when the run is over. One whose servers are processes cannot be resumed: its weights can be taken over.
observe::ProgressOptions progress_options(const train::Recipe& recipe, const ps::Cluster& cluster) {
  observe::ProgressOptions options;
  if (cluster.role == ps::Cluster::Role::none) return options;
  const std::int64_t servers = recipe.ps.servers, workers = recipe.parallel.workers;
  const std::string launcher = cluster.ranks ? fmt::format("mpirun -np {} paceline", servers + workers)
                                             : fmt::format("paceline run --servers {} --workers {} --", servers, workers);
  options.next.back() = {"start anew", launcher + " train {run}/recipe.toml model.weights={last}"};
  return options;
}

nlohmann::ordered_json to_json(const Config& config) {
  nlohmann::ordered_json document;
  for (const Section& section : config.sections())
    for (const Field& field : section.fields())  // values are written as TOML and JSON both do
      document[section.name()][field.key()] = nlohmann::ordered_json::parse(field.toml());
  return document;
}

/// Hears whether a run has come to anything.
class Beginning final : public observe::Listener {
 public:
  explicit Beginning(bool& begun) : begun_(begun) {}
  void on(const observe::Event& event) override {
    begun_ = begun_ || std::holds_alternative<observe::StepDone>(event) || std::holds_alternative<observe::CheckpointWritten>(event) ||
             std::holds_alternative<observe::Evaluated>(event);
  }

 private:
  bool& begun_;
};

void add_records(observe::Bus& bus, const RunFolder& folder, const Clock& clock, bool trace) {
  bus.add(std::make_unique<observe::MetricsLog>(folder.metrics(), clock));
  bus.add(std::make_unique<observe::TensorBoard>(folder.path(), clock));
  bus.add(std::make_unique<observe::Summary>(folder.summary()));
  bus.add(std::make_unique<observe::Predictions>(folder.predictions()));
  bus.add(std::make_unique<observe::Curve>(folder.curve(), clock, folder.metrics()));
  if (trace) bus.add(std::make_unique<observe::Trace>(folder.new_trace(), bus));
}

int run_train(const TrainFlags& flags) {
  const comm::World launched = comm::discover();
  Plan plan = make_plan(flags, launched);
  if (flags.print_recipe) {
    const Config config = plan.recipe.config();
    if (flags.json) print_json(to_json(config));
    else std::cout << config.toml();
    return kDone;
  }
  catch_signals();
  ps::Cluster cluster = find_cluster(plan.recipe, flags.join, flags.key_file, launched);
  cluster.runs = plan.recipe.train.runs;
  plan.recipe = train::recipe_for(plan.recipe, cluster);
  if (!cluster.leads()) return run_remote(plan.recipe, cluster);
  take_up_again(cluster, plan);
  const comm::World world = cluster.ranks ? comm::World{} : launched;  // server 0 trains by itself
  const SteadyClock clock;
  observe::Bus bus;
  train::Workers workers(plan.recipe, world,
                         {.bus = bus, .clock = clock, .stop = stop_requested, .cluster = cluster, .resumes = plan.resume_from.has_value()});
  if (plan.resume_from) workers.resume(plan.resume_from->second, plan.resume_from->first.string());
  plan.recipe = workers.recipe();
  if (!workers.leads()) {  // whoever has worker 0 shows and writes everything
    const observe::RunEnded ended = workers.run({});
    return ended.stopped.empty() ? kDone : kStopped;
  }
  // From here on the input is known to be good: nothing was written before.
  bool begun = plan.folder || !cluster.job.empty();  // then it has things of others
  if (!plan.folder) plan.write_in(new_folder(plan.recipe));
  const RunFolder& folder = *plan.folder;
  try {
    if (!cluster.job.empty()) {
      folder.mark(cluster.job);
      write_key(folder.key(), cluster.key);
    }
    write_atomically(folder.recipe(), plan.recipe.config().toml());
    add_records(bus, folder, clock, plan.recipe.train.trace);
    if (!flags.quiet)  // after them, since it says in the end which of the records there are
      bus.add(std::make_unique<observe::Progress>(observe::Terminal::standard_error(), clock, progress_options(plan.recipe, cluster)));
    bus.add(std::make_unique<Beginning>(begun));
    const observe::RunEnded ended = workers.run(folder.path());
    if (flags.json) print_json(observe::to_json(ended));
    return ended.stopped.empty() ? kDone : kStopped;
  } catch (...) {
    // A disk may be full, and a damaged picture shows when its turn comes. Such an error leaves nothing behind; what was trained before it
    // showed stays.
    std::error_code ignored;
    if (!begun) std::filesystem::remove_all(folder.path(), ignored);
    throw;
  }
}

}  // namespace

Action add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("RECIPE", flags->words, "a recipe file, and any settings as section.key=value, which win over the file");
  app.add_option("--workers", flags->workers, "how many workers train together (parallel.workers)")->check(whole_number(1));
  app.add_option("--seed", flags->seed, "seed of the run (train.seed)")->check(whole_number(0));
  app.add_option("--resume", flags->resume, "go on from a run's folder or a checkpoint")->check([](const std::string& text) {
    return text.empty() ? std::string("names no run; is a variable empty?") : std::string();
  });
  app.add_option("--join", flags->join,
                 "be one more worker of a run with ps.executor=processes: host:port of all its servers, comma-separated");
  app.add_option("--key-file", flags->key_file,
                 "the job's key for --join: RUN/servers/key of the run; without it, $PACELINE_JOB is the key");
  app.add_flag("--print-recipe", flags->print_recipe, "print the resolved recipe and do nothing");
  app.add_flag("--quiet", flags->quiet, "show no progress");
  add_json_flag(app, flags->json);
  add_examples(
      app, {"paceline train                                               the built-in demonstration",
            "paceline train recipes/mnist_lenet5.toml data.root=DIR",
            "paceline train model.network=resnet18 data.name=cifar10 data.root=DIR optim.rate=0.05",
            "paceline train --resume runs/lenet5-shapes-20300101-120000", "paceline train recipes/text_gpt.toml --json > result.json", "",
            "`paceline list` names networks, datasets, optimizers and schedules; docs/recipes.md lists every key."});
  return [flags] { return run_train(*flags); };
}

}  // namespace paceline::cli

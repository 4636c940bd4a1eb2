#include "paceline/program/train_program.h"

#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/key_file.h"
#include "paceline/base/log.h"
#include "paceline/base/process_state.h"
#include "paceline/base/run_program.h"
#include "paceline/comm/engine.h"
#include "paceline/observe/curve.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/predictor_log.h"
#include "paceline/observe/progress.h"
#include "paceline/observe/summary.h"
#include "paceline/observe/tensorboard.h"
#include "paceline/observe/trace.h"
#include "paceline/program/train_command.h"
#include "paceline/program/train_plan.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/remote_processes.h"
#include "paceline/train/workers.h"

namespace paceline::program {
namespace {

using observe::RunFolder;

RunFolder new_folder(const train::Recipe& recipe, const train::Workload& workload) {
  const std::string& name = recipe.train.name;
  const std::string& dataset = workload.training ? workload.training->info().key : recipe.data.name;
  RunFolder folder = RunFolder::create(
      recipe.train.runs, name.empty() ? RunFolder::default_name(train::network_of(recipe, workload), dataset, std::time(nullptr)) : name);
  if (!name.empty() && folder.path().filename() != name)
    log::warning("train.name={}: {} already holds a run, so this one is written to {}; use --resume to continue the old one", name,
                 (std::filesystem::path(recipe.train.runs) / name).string(), folder.path().string());
  return folder;
}

/// Runs a worker, or the server of a range, in a run that another process leads.
int run_remote(const train::Recipe& recipe, const train::Workload& workload, const ps::Cluster& cluster, const train::Checkpoint* resumed) {
  if (cluster.role == ps::Cluster::Role::server) train::run_remote_server(recipe, workload, cluster, stop_requested, resumed);
  else log::info("finished {} minibatches", train::run_remote_worker(recipe, workload, cluster, stop_requested, resumed));
  return kDone;
}

/// The processes of a parameter server: those started by `paceline run --servers` or mpirun, or one that joins them.
ps::Cluster find_cluster(const train::Recipe& recipe, const std::string& join, const std::string& key_file, const comm::World& world) {
  if (recipe.ps.transport != "mpi" || !recipe.ps.by_processes()) return join.empty() ? ps::discover() : ps::joining(join, key_file);
  if (!join.empty()) throw ConfigError("--join needs ps.transport=grpc: with ps.transport=mpi, no worker can join later");
  comm::CommConfig config = recipe.comm;
  if (config.engine == "auto") config.engine = recipe.ps.transport;  // such a transport has the name of its engine
  if (config.engine != recipe.ps.transport)
    throw ConfigError(fmt::format("ps.transport={} with comm.engine={}; leave comm.engine out", recipe.ps.transport, config.engine));
  ps::Cluster cluster = ps::among(comm::connect(config, world), recipe.ps.servers);
  if (recipe.parallel.workers != 0 && recipe.parallel.workers != cluster.workers)
    throw ConfigError(fmt::format("{} workers are requested, but of {} ranks {} are servers; use mpirun -np {}", recipe.parallel.workers,
                                  world.size, recipe.ps.servers, recipe.parallel.workers + recipe.ps.servers));
  return cluster;
}

/// What to do after the run, whose processes are started again by the same launcher.
observe::ProgressOptions progress_options(const train::Recipe& recipe, const std::string& program, const ps::Cluster& cluster) {
  observe::ProgressOptions options;
  if (cluster.role == ps::Cluster::Role::none) {
    options.next.back() = {"resume", program + " --resume {stopped}"};
    return options;
  }
  const std::int64_t servers = recipe.ps.servers, workers = recipe.parallel.workers;
  // `paceline run` accepts paceline's own commands without the program's name.
  const std::string words = !cluster.ranks && program == "paceline train" ? "train" : program;
  const std::string launcher = cluster.ranks ? fmt::format("mpirun -np {}", servers + workers)
                                             : fmt::format("paceline run --servers {} --workers {} --", servers, workers);
  options.next.back() = {"resume", fmt::format("{} {} --resume {{stopped}}", launcher, words)};
  return options;
}

nlohmann::ordered_json to_json(const Config& config) {
  nlohmann::ordered_json document;
  for (const Section& section : config.sections())
    for (const Field& field : section.fields())  // a value is written the same way in TOML and JSON
      document[section.name()][field.key()] = nlohmann::ordered_json::parse(field.toml());
  return document;
}

/// A listener that notes whether a run has produced anything.
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
  bus.add(std::make_unique<observe::PredictorLog>(folder.predictions()));
  bus.add(std::make_unique<observe::Curve>(folder.curve(), clock, folder.metrics()));
  if (trace) bus.add(std::make_unique<observe::Trace>(folder.new_trace(), bus));
}

/// `program` is how it was started: "paceline train" or "./own_model".
int run_train(const TrainFlags& flags, const std::string& program, const MakeWorkload& make_workload) {
  const comm::World launched = comm::discover();
  std::optional<observe::ElapsedLine> reading;  // until the run's own progress begins
  if (!flags.resume.empty() && !flags.quiet && launched.rank == 0) reading.emplace("reading " + flags.resume);
  TrainPlan plan = make_plan(flags, launched);
  if (flags.print_recipe) {
    reading.reset();
    if (plan.recipe.strategy.name == strategies::kPlan)
      plan.recipe = train::planned_for(plan.recipe, launched, make_workload ? make_workload(plan.recipe) : train::Workload{});
    const Config config = plan.recipe.config();
    if (flags.json) print_json(to_json(config));
    else std::cout << config.toml();
    return kDone;
  }
  catch_signals();
  ps::Cluster cluster = find_cluster(plan.recipe, flags.join, flags.key_file, launched);
  cluster.runs = plan.recipe.train.runs;
  // Several launchers share a key that the user chose, perhaps for an earlier job too.
  if (!launched.one_host() && launched.rank == 0 && launched.restarts == 0) RunFolder::forget(cluster.runs, launched.run);
  plan.recipe = train::recipe_for(plan.recipe, cluster);
  const train::Workload workload = make_workload ? make_workload(plan.recipe) : train::Workload{};
  if (plan.resume_from) train::require_own_program(plan.resume_from->second, plan.resume_from->first.string(), workload);
  if (!cluster.leads()) {
    reading.reset();
    return run_remote(plan.recipe, workload, cluster, plan.resume_from ? &plan.resume_from->second : nullptr);
  }
  const comm::World world = cluster.ranks ? comm::World{} : launched;  // server 0 trains alone
  const SteadyClock clock;
  observe::Bus bus;
  train::Workers workers(plan.recipe, world,
                         {.bus = bus,
                          .clock = clock,
                          .stop = stop_requested,
                          .cluster = cluster,
                          .from = plan.resume_from ? &*plan.resume_from : nullptr,
                          .workload = workload,
                          .began = clock.now() - process_age()});
  plan.recipe = workers.recipe();
  reading.reset();
  if (!workers.leads()) {  // the process with worker 0 does all output
    const observe::RunEnded ended = workers.run({});
    return ended.stopped.empty() ? kDone : kStopped;
  }
  // From here on the input is known to be valid; nothing has been written yet.
  bool begun = plan.folder || !cluster.job.empty();  // then the folder already has files of others
  if (!plan.folder) plan.write_in(new_folder(plan.recipe, workload));
  const RunFolder& folder = *plan.folder;
  try {
    if (cluster.role == ps::Cluster::Role::server) {
      if (!folder.is_of(launched.run)) std::filesystem::remove_all(folder.servers());  // snapshots and journals of an earlier job
      std::filesystem::create_directories(folder.servers());
      if (!cluster.key.empty()) write_key(folder.key(), cluster.key);
    }
    if (!launched.run.empty()) folder.mark(launched.run);
    write_atomically(folder.recipe(), plan.recipe.config().toml());
    add_records(bus, folder, clock, plan.recipe.train.trace);
    if (!flags.quiet)  // added last, since it lists the other listeners' files at the end
      bus.add(
          std::make_unique<observe::Progress>(observe::Terminal::standard_error(), clock, progress_options(plan.recipe, program, cluster)));
    bus.add(std::make_unique<Beginning>(begun));
    const observe::RunEnded ended = workers.run(folder.path());
    if (flags.json) print_json(observe::to_json(ended));
    return ended.stopped.empty() ? kDone : kStopped;
  } catch (...) {
    // A disk may be full, and a damaged image is only detected when it is read. If that happens at the start, the new folder is removed;
    // what was trained earlier stays.
    std::error_code ignored;
    if (!begun) std::filesystem::remove_all(folder.path(), ignored);
    throw;
  }
}

}  // namespace

Action add_train(CLI::App& app, const std::string& program, const Defaults& defaults, const MakeWorkload& workload) {
  auto flags = std::make_shared<TrainFlags>();
  if (defaults) flags->defaults = defaults;
  add_train_flags(app, *flags);
  return [flags, program, workload] { return run_train(*flags, program, workload); };
}

int train_program(int argc, char** argv, const train::Recipe& defaults, const MakeWorkload& workload) {
  return run_program([&] {
    const std::string program = argc > 0 ? argv[0] : "program";
    CLI::App app("Trains the model of this program, alone or as one of many workers.", std::filesystem::path(program).filename().string());
    use_plain_help(app);
    add_examples(app, {program, program + " recipe.toml optim.rate=0.05 train.epochs=3", program + " --workers 4",
                       "paceline run -np 4 -- " + program, "mpirun -np 4 " + program,
                       "paceline run --servers 1 --workers 4 -- " + program + " strategy.name=asgd"});
    const Action action = add_train(
        app, program, [&](const auto&) { return defaults; }, workload);
    try {
      parse_words(app, {argv + std::min(argc, 1), argv + argc});
    } catch (const CLI::Success& asked) {
      return app.exit(asked);  // --help
    } catch (const CLI::ParseError& error) {
      throw ConfigError(parse_problem(error, app));
    }
    return action();
  });
}

}  // namespace paceline::program

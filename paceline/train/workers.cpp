#include "paceline/train/workers.h"

#include <algorithm>
#include <exception>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/first_cause.h"
#include "paceline/base/log.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "paceline/train/mesh_advice.h"
#include "paceline/train/planned.h"
#include "paceline/train/shared_folder.h"

namespace paceline::train {
namespace {

int workers_here(const Recipe& recipe, const comm::World& world) {
  std::int64_t workers = recipe.parallel.workers;
  if (workers == 0 && (world.size > 1 || recipe.servers())) return 1;
  if (workers == 0) workers = recipe.parallel.workers_of_mesh();
  if (workers % world.size != 0)
    throw ConfigError(
        fmt::format("parallel.workers={} cannot be divided among the {} processes that {} started; use parallel.workers={} or 0", workers,
                    world.size, world.source, world.size));
  return static_cast<int>(workers / world.size);
}

/// If the recipe does not say: the threads of its process, divided among the workers that compute there at the same time.
int usual_threads_of_worker(const Recipe& recipe, const comm::World& world, int here) {
  const auto workers = static_cast<int>(recipe.parallel.workers);
  const bool central = recipe.servers().has_value();
  if (central && recipe.ps.by_processes()) return usual_threads(world.cores / workers);  // which may all be on this host
  const bool one_plays_all = central && recipe.ps.by_virtual_clock();
  return std::max(1, usual_threads(world.cores / world.local_size) / (one_plays_all ? 1 : std::max(here, workers / world.size)));
}

/// A recipe's `cuda` is the GPU with the worker's number on its host; `cuda:1` is the same one for all.
bool names_gpu(const Recipe& recipe) { return recipe.train.device.starts_with("cuda:"); }

/// The engine between processes. Those that train on GPUs have one each, over NCCL; if a host has fewer, its processes share them.
comm::CommConfig connection_of_processes(const Recipe& recipe, const comm::World& world) {
  comm::CommConfig config = recipe.comm;
  const bool on_gpu = tensor::parse_device(recipe.train.device).is_cuda();
  if (config.engine == "auto" && on_gpu) {
    const bool share = names_gpu(recipe) || tensor::gpu_count() < world.local_size;
    config.engine = share && world.one_host() ? "shm" : "nccl";
  }
  if (config.engine == "auto" || comm::engine_of(config.engine).gpu != comm::Engine::Gpu::own) return config;
  if (!on_gpu || names_gpu(recipe))
    throw ConfigError(
        fmt::format("train.device={} with comm.engine={}, which gives each worker the GPU of its number on its host; use train.device=cuda",
                    recipe.train.device, config.engine));
  return config;
}

/// Only the first process has checked every byte, and there may be a newer checkpoint since then. Returns nothing if this process has the
/// same. Collective.
std::optional<FoundCheckpoint> worker_0s(const FoundCheckpoint& found, comm::Communicator& comm) {
  const auto& [place, checkpoint] = found;
  std::vector<std::int64_t> step = {checkpoint.position.step};
  comm.run(comm::broadcast(step, {.deadline = comm::kUntilTheEnd}));
  const std::filesystem::path first = gather_texts(comm, std::filesystem::absolute(place).string()).front();
  if (step[0] == checkpoint.position.step) return std::nullopt;
  return FoundCheckpoint{first, read_checkpoint(first, Check::structure)};
}

}  // namespace

Recipe resolve_for(const Recipe& given, const comm::World& world, const Workload& workload) {
  Recipe recipe = given;
  const int workers = workers_here(recipe, world) * world.size;
  recipe.parallel.workers = workers;
  recipe.comm.repeatable = recipe.train.repeatable;
  if (recipe.strategy.name == strategies::kPlan) return recipe;  // how they will share the work is not known yet
  try {
    recipe.strategy.name = strategies::resolve(recipe.strategy.name, static_cast<int>(recipe.parallel.data_workers()));
    validate(recipe);
  } catch (const MeshRefusal& refusal) {
    recipe.strategy.name = given.strategy.name;
    refuse_mesh(refusal, recipe, check_by_recipe(recipe, workload));
  }
  return recipe;
}

Recipe planned_for(const Recipe& recipe, const comm::World& world, const Workload& workload) {
  require_plannable(recipe, workload);
  const Recipe resolved = resolve_for(recipe, world, workload);
  const int hosts = std::max(world.size / std::max(world.local_size, 1), 1), workers = static_cast<int>(resolved.parallel.workers);
  const RunHosts where{.hosts = hosts, .workers_per_host = (workers + hosts - 1) / hosts};
  return with_choice(resolved, plan_for(resolved, make_datasets(resolved, workload).training->info(), where).choice);
}

Workers::Workers(const Recipe& recipe, const comm::World& world, const Environment& around)
    : recipe_(resolve_for(recipe, world, around.workload)), world_(world), around_(around) {
  require_plannable(recipe_, around_.workload);
  const auto workers = static_cast<int>(recipe_.parallel.workers);
  here_ = recipe_.servers() ? 1 : workers / world_.size;  // a parameter server has one trainer for all of them
  threads_ = recipe_.train.threads > 0 ? static_cast<int>(recipe_.train.threads) : usual_threads_of_worker(recipe_, world_, here_);
  comms_.resize(static_cast<std::size_t>(here_)), trainers_.resize(static_cast<std::size_t>(here_));
  if (world_.size == 1) {
    const std::string& engine = recipe_.comm.engine;
    if (here_ > 1 && engine != "auto" && comm::engine_of(engine).connect)
      throw ConfigError(fmt::format("workers of comm.engine={} are processes; start them with: {} paceline train …", engine,
                                    comm::engine_of(engine).launcher(workers)));
    comms_ = comm::local_group(here_, recipe_.comm);
  } else {
    const comm::CommConfig connection = connection_of_processes(recipe_, world_.of_thread(0, here_));
    for_each_worker([&](std::size_t i) { comms_[i] = comm::connect(connection, world_.of_thread(static_cast<int>(i), here_)); });
    gpu_by_number_ = tensor::parse_device(recipe_.train.device).is_cuda() && !names_gpu(recipe_);
  }
  // Once connected, ranks can wait for one whose data is on a slower disk, as long as it is alive.
  datasets_ = make_datasets(recipe_, around_.workload);
  if (recipe_.strategy.name == strategies::kPlan) take_plan();
  for_each_worker([&](std::size_t i) {
    if (world_.size > 1) comms_[i]->run(comm::barrier({.deadline = comm::kUntilTheEnd}));
    std::optional<FoundCheckpoint> first;
    if (around_.from && world_.size > 1) first = worker_0s(*around_.from, *comms_[i]);
    trainers_[i] = std::make_unique<Trainer>(recipe_, Trainer::Environment{.bus = around_.bus,
                                                                           .clock = around_.clock,
                                                                           .stop = around_.stop,
                                                                           .comm = comms_[i].get(),
                                                                           .datasets = &datasets_,
                                                                           .threads = threads_,
                                                                           .cluster = around_.cluster,
                                                                           .from = first ? &*first : around_.from,
                                                                           .workload = around_.workload,
                                                                           .began = around_.began});
  });
}

// The files that a plan is made from may differ from host to host, so worker 0 plans and all use its plan.
void Workers::take_plan() {
  std::string chosen;
  for_each_worker([&](std::size_t i) {
    comm::Communicator& comm = *comms_[i];
    std::string settings;
    if (leads() && i == 0) {
      const int hosts = comm.topology().hosts, workers = static_cast<int>(recipe_.parallel.workers);
      const perf::Plan plan =
          plan_for(recipe_, datasets_.training->info(), {.hosts = hosts, .workers_per_host = (workers + hosts - 1) / hosts});
      log::info("plan: {}; predicted step time {:.3g} ms", perf::title_of(plan.choice), plan.cost.seconds * 1e3);
      settings = fmt::format("{}", fmt::join(perf::settings_of(plan.choice), "\n"));
    }
    const std::string first = gather_texts(comm, settings).front();
    if (i == 0) chosen = first;
  });
  recipe_ = resolve_for(with_settings(recipe_, split(chosen, '\n')), world_);
}

// All at once: a worker may wait for the others to leave before it does.
Workers::~Workers() {
  try {
    for_each_worker([this](std::size_t i) { trainers_[i].reset(); });
  } catch (...) {  // an error while leaving no longer matters
  }
}

void Workers::for_each_worker(const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> problems(static_cast<std::size_t>(here_));
  const auto play = [&](std::size_t i) {
    const auto [part, parts] = world_.part_of_cores(static_cast<int>(i), here_);
    const OwnCores cores(part, parts);
    try {
      if (gpu_by_number_) tensor::use_gpu(world_.of_thread(static_cast<int>(i), here_).local_rank % tensor::gpu_count());
      body(i);
    } catch (...) {
      problems[i] = std::current_exception();
      trainers_[i].reset(), comms_[i].reset();  // so that the others notice at once that this worker is gone
    }
  };
  if (here_ == 1) {
    play(0);
  } else {
    std::vector<std::thread> threads;
    threads.reserve(problems.size());
    for (std::size_t i = 0; i < problems.size(); ++i) threads.emplace_back(play, i);
    for (std::thread& thread : threads) thread.join();
  }
  if (const std::exception_ptr cause = first_cause(problems)) std::rethrow_exception(cause);
}

observe::RunEnded Workers::run(const std::filesystem::path& folder) {
  ensure_memory_for(here_ * threads_);
  std::vector<observe::RunEnded> ended(static_cast<std::size_t>(here_));
  for_each_worker([&](std::size_t i) { ended[i] = trainers_[i]->run(folder); });
  return ended.front();
}

}  // namespace paceline::train

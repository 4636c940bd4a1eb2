#include "paceline/measure/measuring_ranks.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "paceline/base/affinity.h"
#include "paceline/base/first_cause.h"
#include "paceline/comm/engine.h"

namespace paceline::measure {

void Rank::meet() const {
  if (comm.size() > 1) comm.run(comm::barrier({.deadline = comm::kUntilTheEnd}));
}

std::vector<double> Rank::mean(std::vector<double> values) const {
  if (comm.size() > 1 && !values.empty()) comm.run(comm::allreduce(values, {.op = comm::ReduceOp::mean, .deadline = comm::kUntilTheEnd}));
  return values;
}

std::vector<double> Rank::largest(std::vector<double> values) const {
  if (comm.size() > 1 && !values.empty()) comm.run(comm::allreduce(values, {.op = comm::ReduceOp::max, .deadline = comm::kUntilTheEnd}));
  return values;
}

std::int64_t Rank::agreed(std::int64_t value) const {
  std::vector<std::int64_t> values = {value};
  if (comm.size() > 1) comm.run(comm::broadcast(values, {.deadline = comm::kUntilTheEnd}));
  return values.front();
}

void play(const comm::World& world, int workers, const comm::CommConfig& config, const Say& say, const std::function<void(Rank&)>& body) {
  if (world.size > 1) {
    const auto [part, parts] = world.part_of_cores();
    const OwnCores cores(part, parts);
    const auto comm = comm::connect(config, world);
    Rank rank{.comm = *comm, .threads = usual_threads(std::max(world.cores / world.local_size, 1)), .say = world.rank == 0 ? say : Say()};
    return body(rank);
  }
  auto group = comm::local_group(workers, config);
  std::vector<std::exception_ptr> problems(group.size());
  const auto play_one = [&](std::size_t index) {
    const OwnCores cores(static_cast<int>(index), workers);
    try {
      Rank rank{.comm = *group[index], .threads = std::max(usual_threads(world.cores) / workers, 1), .say = index == 0 ? say : Say()};
      body(rank);
    } catch (...) {
      problems[index] = std::current_exception();
      group[index].reset();  // so that the other ranks notice
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t index = 1; index < group.size(); ++index) threads.emplace_back(play_one, index);
  play_one(0);
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr cause = first_cause(problems)) std::rethrow_exception(cause);
}

}  // namespace paceline::measure

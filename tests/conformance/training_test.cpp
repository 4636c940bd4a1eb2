// Training with 2, 3 and 4 workers equals training with one (relative 1e-5 after 20 steps), on every engine, with every algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "paceline/comm/engine.h"
#include "paceline/schedule/schedule.h"
#include "training.h"

namespace paceline::conformance {
namespace {

constexpr double kTolerance = 1e-5;

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, EqualOneWorkerWithEveryAlgorithmAndEveryCase) {
  const int size = GetParam();
  std::vector<std::string> algorithms = {"auto"};
  for (const auto& row : schedule::algorithms()) algorithms.emplace_back(row.key);
  for (const std::string& algorithm : algorithms)
    for (const TrainingCase& wanted : algorithm == "auto" ? training_cases() : few_training_cases()) {
      auto group = comm::local_group(size);
      std::vector<double> differences(static_cast<std::size_t>(size), 1);
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < size; ++rank)
        ranks.emplace_back([&, rank] {
          differences[static_cast<std::size_t>(rank)] =
              difference_from_one_worker(*group[static_cast<std::size_t>(rank)], wanted, algorithm);
        });
      for (std::thread& rank : ranks) rank.join();
      for (double difference : differences) EXPECT_LE(difference, kTolerance) << wanted.name << " by " << algorithm;
    }
}

INSTANTIATE_TEST_SUITE_P(Training, Threads, testing::Values(1, 2, 3, 4),
                         [](const auto& item) { return fmt::format("local_{}", item.param); });

struct Processes {
  const char* engine;
  int size;
};

class Launched : public testing::TestWithParam<Processes> {};

TEST_P(Launched, EqualOneWorkerWithEveryAlgorithm) {
  const auto [engine, size] = GetParam();
  if (std::none_of(comm::engines().begin(), comm::engines().end(), [&](const auto& row) { return row.key == engine; }))
    GTEST_SKIP() << "this build has no engine " << engine;
  const std::string folder = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  const bool mpi = std::string_view(engine) == "mpi";
  if (mpi && std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun here; install openmpi-bin";
  const std::string launcher =
      mpi ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 mpirun --oversubscribe" : folder + "/paceline run";
  const std::string command = fmt::format("{} -np {} {} {}/training_rank {}", launcher, size, mpi ? "" : "--", folder, engine);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(Training, Launched,
                         testing::Values(Processes{"shm", 2}, Processes{"shm", 3}, Processes{"shm", 4}, Processes{"gloo", 2},
                                         Processes{"gloo", 3}, Processes{"gloo", 4}, Processes{"mpi", 2}, Processes{"mpi", 3},
                                         Processes{"mpi", 4}),
                         [](const auto& item) { return fmt::format("{}_{}", item.param.engine, item.param.size); });

}  // namespace
}  // namespace paceline::conformance

// Every engine × collective × algorithm × size × type against one oracle. Threads here; processes through conformance_rank.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "collectives.h"
#include "paceline/comm/engine.h"

namespace paceline::comm {
namespace {

struct Setting {
  std::string engine;
  int size;
  int per_host;
};

std::string label(const testing::TestParamInfo<Setting>& info) {
  const Setting& s = info.param;
  return fmt::format("{}_{}{}", s.engine, s.size, s.per_host ? fmt::format("_by_{}", s.per_host) : "");
}

std::vector<Setting> settings(const std::vector<std::string>& engines_wanted, const std::vector<int>& sizes) {
  std::vector<Setting> all;
  for (const std::string& engine : engines_wanted)
    for (const int size : sizes)
      for (const int per_host : {0, 1, 2})
        if (per_host < size) all.push_back({engine, size, per_host});
  return all;
}

std::vector<std::string> process_engines() {
  std::vector<std::string> keys;
  for (const auto& row : engines())
    if (row.make.connect && !row.make.on_gpu) keys.emplace_back(row.key);
  return keys;
}

class Threads : public testing::TestWithParam<Setting> {};

TEST_P(Threads, AgreeWithTheOracle) {
  CommConfig config;
  config.per_host = GetParam().per_host;
  auto group = local_group(GetParam().size, config);
  std::vector<std::string> wrong(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        wrong[rank] = conform_all(*group[rank]);
      } catch (const std::exception& problem) {
        wrong[rank] = problem.what();
      }
      if (!wrong[rank].empty()) group[rank].reset();  // the others learn that this rank left
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Conformance, Threads, testing::ValuesIn(settings({"local"}, {1, 2, 3, 4, 5})), label);

class Processes : public testing::TestWithParam<Setting> {};

pid_t start(const std::vector<std::string>& words, const std::vector<std::string>& variables) {
  std::vector<char*> arguments, environment;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  for (const auto& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
  for (char** inherited = environ; *inherited; ++inherited) environment.push_back(*inherited);
  arguments.push_back(nullptr), environment.push_back(nullptr);
  pid_t pid = -1;
  if (posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environment.data()) != 0) return -1;
  return pid;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string rank_program() { return (std::filesystem::canonical("/proc/self/exe").parent_path() / "conformance_rank").string(); }

TEST_P(Processes, AgreeWithTheOracle) {
  const auto& [engine, size, per_host] = GetParam();
  if (engine == "mpi") {
    const pid_t pid = start({"mpirun", "--oversubscribe", "-np", std::to_string(size), rank_program(), engine, std::to_string(per_host)},
                            {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
    if (pid < 0) GTEST_SKIP() << "there is no mpirun here; install openmpi-bin to test the mpi engine";
    EXPECT_EQ(exit_code_of(pid), 0);
    return;
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(start({rank_program(), engine, std::to_string(per_host)},
                          {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", size), fmt::format("LOCAL_RANK={}", rank),
                           fmt::format("LOCAL_WORLD_SIZE={}", size), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                           fmt::format("PACELINE_JOB=conformance-{}", getpid())}));
  for (const pid_t pid : ranks) EXPECT_EQ(exit_code_of(pid), 0);
}

INSTANTIATE_TEST_SUITE_P(Conformance, Processes, testing::ValuesIn(settings(process_engines(), {2, 3, 4, 5})), label);

}  // namespace
}  // namespace paceline::comm

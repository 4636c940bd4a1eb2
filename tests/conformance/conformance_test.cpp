// Every engine × collective × algorithm × size × type against one oracle. Threads here; processes through conformance_rank.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "collectives.h"
#include "on_gpu.h"
#include "paceline/comm/engine.h"

namespace paceline::comm {
namespace {

struct Setting {
  std::string engine;
  int size;
  int per_host;
  int threads = 1;    // ranks of each process
  int jitter_us = 0;  // of messages
  bool on_gpu = false;
};

std::string label(const testing::TestParamInfo<Setting>& info) {
  const Setting& s = info.param;
  return fmt::format("{}_{}{}{}{}{}", s.engine, s.size, s.per_host ? fmt::format("_by_{}", s.per_host) : "",
                     s.threads > 1 ? fmt::format("_threads_{}", s.threads) : "", s.jitter_us ? "_under_jitter" : "",
                     s.on_gpu ? "_on_gpu" : "");
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
    if (row.make.connect && row.make.gpu != Engine::Gpu::own) keys.emplace_back(row.key);
  return keys;
}

class Threads : public testing::TestWithParam<Setting> {};

TEST_P(Threads, AgreeWithTheOracle) {
  if (GetParam().on_gpu && !gpu::available()) GTEST_SKIP() << "no GPU here";
  CommConfig config;
  config.per_host = GetParam().per_host;
  config.link_jitter_us = GetParam().jitter_us;
  const std::span<const DType> types = std::span(kDTypes).first(GetParam().jitter_us > 0 ? 1 : std::size(kDTypes));  // order has no type
  auto group = local_group(GetParam().size, config);
  for (auto& rank : group)
    if (GetParam().on_gpu) rank = std::make_unique<ByWayOfGpu>(std::move(rank));
  std::vector<std::string> wrong(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        wrong[rank] = conform_all(*group[rank], types);
      } catch (const std::exception& problem) {
        wrong[rank] = problem.what();
      }
      if (!wrong[rank].empty()) group[rank].reset();  // the others learn that this rank left
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Conformance, Threads, testing::ValuesIn(settings({"local"}, {1, 2, 3, 4, 5})), label);
INSTANTIATE_TEST_SUITE_P(Jitter, Threads, testing::Values(Setting{.engine = "local", .size = 3, .per_host = 1, .jitter_us = 50}), label);

INSTANTIATE_TEST_SUITE_P(Gpu, Threads,
                         testing::Values(Setting{.engine = "local", .size = 2, .per_host = 0, .on_gpu = true},
                                         Setting{.engine = "local", .size = 5, .per_host = 0, .on_gpu = true}),
                         label);

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

std::vector<std::string> rank_command(const Setting& s) {
  std::vector<std::string> words = {rank_program(), s.engine, std::to_string(s.per_host), std::to_string(s.threads)};
  if (s.on_gpu) words.emplace_back("gpu");
  return words;
}

/// Nothing where there is no mpirun.
std::optional<int> under_mpirun(const Setting& s) {
  std::vector<std::string> words{"mpirun", "--oversubscribe", "-np", std::to_string(s.size / s.threads)};
  std::ranges::copy(rank_command(s), std::back_inserter(words));
  const pid_t pid = start(words, {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  return pid < 0 ? std::nullopt : std::optional(exit_code_of(pid));
}

TEST_P(Processes, AgreeWithTheOracle) {
  const Setting& setting = GetParam();
  if (setting.on_gpu && !gpu::available()) GTEST_SKIP() << "no GPU here";
  if (setting.engine == "mpi") {
    const auto code = under_mpirun(setting);
    if (!code) GTEST_SKIP() << "there is no mpirun here; install openmpi-bin to test the mpi engine";
    EXPECT_EQ(*code, 0);
    return;
  }
  std::vector<pid_t> processes;
  const int count = setting.size / setting.threads;
  for (int rank = 0; rank < count; ++rank)
    processes.push_back(
        start(rank_command(setting), {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", count), fmt::format("LOCAL_RANK={}", rank),
                                      fmt::format("LOCAL_WORLD_SIZE={}", count), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                                      fmt::format("PACELINE_JOB=conformance-{}", getpid())}));
  for (const pid_t pid : processes) EXPECT_EQ(exit_code_of(pid), 0);
}

INSTANTIATE_TEST_SUITE_P(Conformance, Processes, testing::ValuesIn(settings(process_engines(), {1, 2, 3, 4, 5})), label);

// Processes that share a GPU, and two of two threads each.
INSTANTIATE_TEST_SUITE_P(Gpu, Processes,
                         testing::Values(Setting{.engine = "shm", .size = 2, .per_host = 0, .on_gpu = true},
                                         Setting{.engine = "shm", .size = 3, .per_host = 0, .on_gpu = true},
                                         Setting{.engine = "shm", .size = 4, .per_host = 0, .threads = 2, .on_gpu = true}),
                         label);

/// Two processes of two ranks each.
std::vector<Setting> threads_of_processes() {
  std::vector<Setting> all;
  for (const std::string& engine : process_engines())
    for (const int per_host : {0, 1, 2})
      if (engine != "mpi") all.push_back({engine, 4, per_host, 2});
  return all;
}

INSTANTIATE_TEST_SUITE_P(ThreadsOfProcesses, Processes, testing::ValuesIn(threads_of_processes()), label);

TEST(Mpi, RefusesSeveralRanksOfOneProcess) {
  testing::internal::CaptureStderr();
  const auto code = under_mpirun({"mpi", 4, 0, 2});
  const std::vector<std::string> keys = process_engines();
  const bool has_mpi = std::ranges::find(keys, "mpi") != keys.end();
  const std::string said = testing::internal::GetCapturedStderr();
  if (!code || !has_mpi) GTEST_SKIP() << "there is no MPI here";
  EXPECT_NE(*code, 0);
  EXPECT_NE(said.find("carries one rank per process, but this world has 4 ranks in 2 processes; use comm.engine=shm"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace paceline::comm

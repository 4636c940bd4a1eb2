// Rank discovery: every launcher's variables, and what is said where they do not fit together.
#include "paceline/comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "paceline/base/error.h"
#include "paceline/base/host.h"
#include "paceline/comm/communicator.h"

namespace paceline::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Variables = std::map<std::string, std::string>;

EnvironmentVariables environment_of(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

World found(const Variables& variables) { return discover(environment_of(variables)); }

std::string refusal(const Variables& variables) {
  try {
    found(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const Variables kTorchrun = {{"RANK", "3"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_ranks(const World& world, int rank, int size, int local_rank, int local_size, const std::string& source) {
  EXPECT_EQ(world.rank, rank);
  EXPECT_EQ(world.size, size);
  EXPECT_EQ(world.local_rank, local_rank);
  EXPECT_EQ(world.local_size, local_size);
  EXPECT_EQ(world.source, source);
}

TEST(World, RanksOfAHostShareTheCoresOfTheirLauncherUnlessItHasBoundThem) {
  EXPECT_EQ(cores_between(4, 64, 64), 64);
  EXPECT_EQ(cores_between(4, 4, 4), 4) << "all of them on four";
  EXPECT_EQ(cores_between(4, 4, 0), 4) << "a launcher that nobody can see";
  EXPECT_EQ(cores_between(2, 1, 16), 2) << "a core each";
  EXPECT_EQ(cores_between(2, 8, 16), 16) << "half each";
  EXPECT_EQ(cores_between(16, 8, 16), 16) << "a socket each, which eight share";

  using Part = std::pair<int, int>;
  World world = found({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(world.cores, usable_cores());
  EXPECT_EQ(world.part_of_cores(), Part(1, 4));
  EXPECT_EQ(world.part_of_cores(2, 3), Part(5, 12));
  world.cores += 1;  // more than this process has: they are not all its own
  EXPECT_EQ(world.part_of_cores(), Part(0, 1));
  EXPECT_EQ(world.part_of_cores(2, 3), Part(2, 3));
}

TEST(Discover, Alone) {
  expect_ranks(found({}), 0, 1, 0, 1, "alone");
  // A shell inside salloc or a batch script is no step: it must not wait for ranks that nobody starts.
  expect_ranks(found({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}), 0, 1, 0, 1, "alone");
  expect_ranks(found({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}}), 0, 1, 0, 1, "alone");
}

TEST(Discover, Torchrun) {
  const World world = found(kTorchrun);
  expect_ranks(world, 3, 4, 1, 2, "torchrun");
  EXPECT_EQ(world.address, "a");
  EXPECT_EQ(world.port, 29500);
  EXPECT_EQ(world.more_ports, 0);
  EXPECT_EQ(world.job, "");
}

TEST(Discover, TorchrunWhoseAgentKeepsThePort) {
  const World world =
      found(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(world.port, 29501);
  EXPECT_EQ(world.more_ports, 7);
  EXPECT_EQ(world.job, "x.2");
  EXPECT_THAT(refusal(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}})),
              HasSubstr("MASTER_PORT=65535"));
}

TEST(Discover, PacelineRun) {
  const World world = found(with(kTorchrun, {{"PACELINE_JOB", "token"}}));
  expect_ranks(world, 3, 4, 1, 2, "paceline run");
  EXPECT_EQ(world.job, "token");
  EXPECT_EQ(world.restarts, 0);
  EXPECT_FALSE(world.run.empty());
  EXPECT_THAT(world.run, Not(HasSubstr("token")));
}

TEST(Discover, AStartOfPacelineRunDoesNotMeetAnEarlierOneAndFindsItsRun) {
  const Variables first = with(kTorchrun, {{"PACELINE_JOB", "token"}, {"PACELINE_RESTARTS", "0"}});
  const World again = found(with(first, {{"PACELINE_RESTARTS", "2"}}));
  EXPECT_EQ(again.restarts, 2);
  EXPECT_EQ(again.run, found(first).run);
  EXPECT_NE(again.job, found(first).job);
  // Servers and workers of several starts are one job.
  EXPECT_EQ(found({{"PACELINE_JOB", "token"}, {"PACELINE_RESTARTS", "2"}}).job, "token");
  EXPECT_THAT(refusal(with(first, {{"PACELINE_RESTARTS", "x"}})), HasSubstr("PACELINE_RESTARTS='x'"));
}

TEST(Connecting, MayTakeLongerTheMoreRanksShareACore) {
  CommConfig config;
  World world;
  world.cores = 2, world.size = world.local_size = 2;
  EXPECT_EQ(config.connect_deadline(world), std::chrono::seconds(30));
  world.size = world.local_size = 64;
  EXPECT_GE(config.connect_deadline(world), std::chrono::seconds(300));
  config.deadline_s = 1000;
  EXPECT_EQ(config.connect_deadline(world), std::chrono::seconds(1000));
}

TEST(Discover, TheFourVariablesOfPyTorch) {
  Variables four = without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE");
  expect_ranks(found(four), 3, 4, 0, 1, "torchrun");
  four["MASTER_ADDR"] = "localhost";
  expect_ranks(found(four), 3, 4, 3, 4, "torchrun");
  expect_ranks(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), 0, 1, 0, 1, "torchrun");
}

TEST(Discover, OpenMpi) {
  const Variables variables = {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"},     {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}, {"OMPI_MCA_ess_base_jobid", "77"}, {"SLURM_PROCID", "9"}};
  const World world = found(variables);
  expect_ranks(world, 2, 3, 2, 3, "mpi");
  EXPECT_EQ(world.address, "");
  EXPECT_EQ(world.job, "mpi-77");
  EXPECT_EQ(found(with(variables, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}})).port, 1234);
  EXPECT_THAT(refusal(with(variables, {{"MASTER_ADDR", "a"}})), HasSubstr("MASTER_PORT is not set"));
  expect_ranks(found(with(variables, kTorchrun)), 3, 4, 1, 2, "torchrun");  // comes first
}

TEST(Discover, Mpich) {
  const World world = found({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  expect_ranks(world, 1, 2, 1, 2, "mpi");
  EXPECT_THAT(world.job, HasSubstr("ancestor-"));  // MPICH gives no name, so its proxy's process does
}

TEST(Discover, Slurm) {
  const Variables variables = {{"SLURM_PROCID", "5"},
                               {"SLURM_NTASKS", "7"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_JOB_ID", "42"},
                               {"SLURM_NODEID", "2"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                               {"SLURM_STEP_NODELIST", "node[07-09,12]"}};
  const World world = found(variables);
  expect_ranks(world, 5, 7, 1, 2, "slurm");
  EXPECT_EQ(world.job, "slurm-42.0");
  EXPECT_EQ(world.address, "node07");
  EXPECT_EQ(world.port, found(with(variables, {{"SLURM_PROCID", "0"}})).port);
  EXPECT_GE(world.port, 20000);
  EXPECT_EQ(found(with(variables, {{"SLURM_STEP_NODELIST", "alpha,beta[1-2]"}})).address, "alpha");
  EXPECT_THAT(refusal(with(variables, {{"SLURM_NODEID", "4"}})), AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE"), HasSubstr("node 4")));
  EXPECT_THAT(refusal(with(variables, {{"SLURM_STEP_TASKS_PER_NODE", "900(x4)"}})),
              AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE"), HasSubstr("900"), HasSubstr("7")));
  EXPECT_THAT(refusal(without(variables, "SLURM_LOCALID")), HasSubstr("SLURM_LOCALID is not set"));
  const Variables one_node =
      with(without(variables, "SLURM_STEP_TASKS_PER_NODE"), {{"SLURM_NTASKS_PER_NODE", "7"}, {"SLURM_LOCALID", "5"}});
  expect_ranks(found(one_node), 5, 7, 5, 7, "slurm");
  EXPECT_EQ(found(one_node).address, "");
}

TEST(Discover, RefusesHalfASet) {
  EXPECT_THAT(refusal({{"RANK", "0"}}), AllOf(HasSubstr("WORLD_SIZE is not set"), HasSubstr("RANK")));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), AllOf(HasSubstr("RANK is not set"), HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", ""}})), HasSubstr("WORLD_SIZE is not set"));
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_THAT(refusal(without(kTorchrun, name)), HasSubstr(std::string(name) + " is not set")) << name;
  EXPECT_THAT(refusal({{"LOCAL_RANK", "0"}}), HasSubstr("LOCAL_RANK is set, but RANK and WORLD_SIZE are not"));
  EXPECT_THAT(refusal({{"MASTER_ADDR", "a"}}), HasSubstr("MASTER_ADDR is set, but"));
  EXPECT_THAT(refusal({{"MASTER_PORT", "29500"}}), HasSubstr("MASTER_PORT is set, but"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK is not set"));
}

TEST(Discover, RefusesWrongNumbers) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "4"}})), AllOf(HasSubstr("RANK=4"), HasSubstr("from 0 to 3"), HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "one"}})), HasSubstr("RANK='one' is not a whole number"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "1.5"}})), HasSubstr("RANK='1.5'"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "99999999999"}})), HasSubstr("WORLD_SIZE="));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_RANK", "2"}})), HasSubstr("LOCAL_RANK=2"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}})), HasSubstr("LOCAL_WORLD_SIZE=5"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT=65536"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "http"}})), HasSubstr("MASTER_PORT='http'"));
}

TEST(Host, IsTheSameInOneProcess) {
  EXPECT_EQ(host_id(), host_id());
  EXPECT_THAT(host_id(), AllOf(HasSubstr("/pid:["), HasSubstr("/net:[")));
  EXPECT_NE(host_name(), "");
  for (const char* own : {"localhost", "127.0.1.1", "::1"}) EXPECT_TRUE(names_loopback(own)) << own;
  for (const char* other : {"128.0.0.1", "fe80::1", "localhost.example.org"}) EXPECT_FALSE(names_loopback(other)) << other;
}

}  // namespace
}  // namespace paceline::comm

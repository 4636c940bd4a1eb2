// Jobs with parameter servers: who is told what, and who may die. The processes are small shell programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "paceline/base/files.h"
#include "paceline/base/run_program.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/launch/addresses.h"
#include "paceline/launch/launcher.h"
#include "paceline/launch/variables.h"

namespace paceline::launch {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::UnorderedElementsAre;

const Machine kMachine = {4, [](const std::string& host) { return host == "here"; }};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

/// A folder where the processes can leave word for each other, and a job whose servers and workers run scripts.
class ServersAndWorkers : public testing::Test {
 protected:
  void SetUp() override {
    job.grace = 200ms;
    job.output.folder = folder_.path();
    job.exported = {"F=" + folder_.path().string()};
  }

  /// Runs it; what was shown is in `out` and `err`. `await FILE` is for the scripts: it waits until somebody left that word.
  int run(int servers, int workers, const std::string& server, const std::string& worker) {
    job.placement = place_ranks({.servers = servers, .workers = workers}, kMachine);
    job.servers = servers;
    job.program = {"sh", "-c",
                   "await() { until [ -e $F/$1 ]; do sleep 0.01; done; }; if [ $PACELINE_ROLE = server ]; then " + server + "; else " +
                       worker + "; fi"};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = launch(job).code;
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string file(const std::string& name) const { return read_file(folder_ / name); }

  Job job;
  std::string out, err;

 private:
  TemporaryFolder folder_;
};

TEST_F(ServersAndWorkers, EverybodyIsToldWhoItIsAndWhereTheServersAre) {
  const std::string tell = "echo $PACELINE_ROLE ${PACELINE_SERVER-none} ${PACELINE_WORKER-none} $PACELINE_SERVERS";
  // The job ends with server 0: it waits for what the others have to say.
  ASSERT_EQ(run(2, 2, tell + "; touch $F/s$PACELINE_SERVER; [ $PACELINE_SERVER = 1 ] || { await s1; await 0; await 1; }",
                tell + "; touch $F/$PACELINE_WORKER"),
            0)
      << err;
  const std::string addresses = file("server-0.log").substr(std::string("server 0 none ").size());
  EXPECT_THAT(addresses, MatchesRegex("127\\.0\\.0\\.1:[0-9]+,127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_EQ(file("server-1.log"), "server 1 none " + addresses);
  EXPECT_EQ(file("worker-1.log"), "worker none 1 " + addresses);
  EXPECT_THAT(lines_of(out), testing::Contains("[worker 1] worker none 1 " + addresses.substr(0, addresses.size() - 1)));
  EXPECT_THAT(out, HasSubstr("[server 0] server 0"));
}

TEST_F(ServersAndWorkers, NobodyIsARankOfAGroup) {
  const std::vector<std::string> inherited = {"RANK",        "WORLD_SIZE",           "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                                              "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_SIZE",   "SLURM_PROCID",     "PACELINE_SERVER"};
  for (const std::string& name : inherited) ::setenv(name.c_str(), "7", 1);
  const int code = run(1, 1, "env", "env");
  for (const std::string& name : inherited) ::unsetenv(name.c_str());
  ASSERT_EQ(code, 0);
  for (const std::string& name : inherited) {
    EXPECT_THAT(file("worker-0.log"), Not(HasSubstr("\n" + name + "="))) << name;
    EXPECT_THAT(file("server-0.log"), Not(HasSubstr(name + "=7"))) << name;
  }
  EXPECT_THAT(file("worker-0.log"), HasSubstr("PACELINE_JOB="));
}

TEST_F(ServersAndWorkers, GoesOnWithoutAWorkerThatDied) {
  EXPECT_EQ(run(1, 3, "await 0; await 2; echo served", "[ $PACELINE_WORKER = 1 ] && kill -9 $$; sleep 0.1; touch $F/$PACELINE_WORKER"), 0);
  EXPECT_THAT(lines_of(err),
              ElementsAre(MatchesRegex("warning: worker 1 \\(pid [0-9]+, host .+\\) was killed by signal 9 \\(SIGKILL\\) after "
                                       "[0-9]+ s; the others continue")));
  EXPECT_THAT(out, HasSubstr("[server 0] served"));
}

TEST_F(ServersAndWorkers, WithoutAnyWorkerItFails) {
  EXPECT_EQ(run(2, 2, "sleep 1000", "[ $PACELINE_WORKER = 1 ] || { touch $F/0; exit 4; }; await 0; sleep 0.1; exit 6"), 6);
  EXPECT_THAT(lines_of(err),
              ElementsAre(HasSubstr("exited with code 4"), MatchesRegex("warning: worker 1 .* exited with code 6 after [0-9]+ s"),
                          "error: all workers were lost; the servers were stopped"));
}

TEST_F(ServersAndWorkers, WorkersThatDieAtOnceAreAllTold) {
  EXPECT_EQ(run(1, 4, "sleep 1000", "kill -9 $$"), 137);
  for (int worker = 0; worker < 4; ++worker) EXPECT_THAT(err, HasSubstr("warning: worker " + std::to_string(worker) + " "));
  EXPECT_EQ(lines_of(err).size(), 5U) << err;
}

TEST_F(ServersAndWorkers, ServerZeroMayStillEndWellAfterTheLastWorkerWasLost) {
  job.grace = 30s;
  EXPECT_EQ(run(1, 1, "await gone; sleep 0.1", "touch $F/gone; exit 4"), 0);
  EXPECT_THAT(lines_of(err), ElementsAre(HasSubstr("exited with code 4")));
}

TEST_F(ServersAndWorkers, ServerZeroHasItsTimeAfterWorkersThatEndedWell) {
  job.grace = 50ms;
  EXPECT_EQ(run(1, 2, "await 0; sleep 0.5; echo evaluated", "[ $PACELINE_WORKER = 0 ] || exit 1; sleep 0.2; touch $F/0"), 0) << err;
  EXPECT_THAT(out, HasSubstr("evaluated"));
}

TEST_F(ServersAndWorkers, IsOverWhenServerZeroHasEndedWell) {
  // Server 1 serves until it is told to end; worker 0 ends by itself, worker 1 has to be told too.
  job.grace = 300ms;
  EXPECT_EQ(run(2, 2, "[ $PACELINE_SERVER = 0 ] || exec sleep 1000; await ready",
                "touch $F/ready; [ $PACELINE_WORKER = 0 ] || exec sleep 1000; sleep 0.1; echo left"),
            0);
  EXPECT_THAT(out, HasSubstr("[worker 0] left"));
  EXPECT_EQ(err, "");
}

TEST_F(ServersAndWorkers, ServersAreNotKeptWhenTheWorkersHaveLeft) {
  job.grace = 1h;  // would be waited for
  EXPECT_EQ(run(3, 2, "[ $PACELINE_SERVER = 0 ] || exec sleep 1000; await 0; await 1", "touch $F/$PACELINE_WORKER"), 0);
  EXPECT_EQ(err, "");
}

TEST_F(ServersAndWorkers, WhoDoesNotHearSigtermIsKilled) {
  job.grace = 100ms;
  EXPECT_EQ(
      run(2, 1, "[ $PACELINE_SERVER = 1 ] || { await deaf; exit 0; }; trap '' TERM; touch $F/deaf; while :; do sleep 0.05; done", "true"),
      0);
  EXPECT_THAT(lines_of(err), ElementsAre(MatchesRegex("warning: server 1 .* was killed by signal 9 .*, after server 0 had ended")));
}

TEST_F(ServersAndWorkers, TheExitCodeIsThatOfServerZero) {
  EXPECT_EQ(run(2, 1, "[ $PACELINE_SERVER = 0 ] || exec sleep 1000; exit 3", "exec sleep 1000"), kStopped);
  EXPECT_EQ(err, "");
  EXPECT_EQ(run(2, 1, "[ $PACELINE_SERVER = 0 ] || exec sleep 1000; exit 9", "exec sleep 1000"), 9);
  EXPECT_THAT(lines_of(err), ElementsAre(MatchesRegex("error: server 0 .* exited with code 9 after 0 s; the others were stopped")));
  EXPECT_EQ(run(2, 1, "[ $PACELINE_SERVER = 1 ] || exec sleep 1000; kill -9 $$", "exec sleep 1000"), 137);
  EXPECT_THAT(lines_of(err), ElementsAre(MatchesRegex("error: server 1 .* was killed by signal 9 .*; the others were stopped")));
}

TEST_F(ServersAndWorkers, AServerIsStartedAgainAndTheOthersAreNot) {
  job.max_restarts = 2;
  const std::string server =
      "echo $PACELINE_RESTARTS $PACELINE_SERVERS $PACELINE_JOB; [ $PACELINE_SERVER = 0 ] && { await done; exit 0; }; "
      "[ $PACELINE_RESTARTS = 2 ] || { printf 'last words'; kill -9 $$; }; touch $F/back; exec sleep 1000";
  EXPECT_EQ(run(2, 2, server, "echo $PACELINE_RESTARTS; await back; touch $F/done"), 0) << err;
  EXPECT_THAT(lines_of(err), ElementsAre(MatchesRegex("warning: server 1 .* was killed by signal 9 .*; restarting it, restart 1 of 2"),
                                         MatchesRegex("warning: server 1 .*; restarting it, restart 2 of 2")));
  const std::string first = file("server-0.log").substr(1);  // addresses and name of the job, the same for every start
  EXPECT_EQ(file("server-1.log"), "0" + first + "last words1" + first + "last words2" + first);
  EXPECT_EQ(file("worker-0.log") + file("worker-1.log"), "0\n0\n");
  EXPECT_THAT(out, HasSubstr("[server 1] last words\n"));
}

TEST_F(ServersAndWorkers, AWorkerIsStartedAgainAndThenTheOthersGoOnWithoutIt) {
  job.max_restarts = 2;
  EXPECT_EQ(run(1, 2, "await done; await lost",
                "echo $PACELINE_RESTARTS; [ $PACELINE_WORKER = 1 ] || { await back; touch $F/done; exec sleep 1000; }; "
                "[ $PACELINE_RESTARTS = 2 ] || exit 9; touch $F/back; await done; touch $F/lost; exit 9"),
            0)
      << err;
  EXPECT_THAT(lines_of(err), ElementsAre(MatchesRegex("warning: worker 1 .* code 9 .*; restarting it, restart 1 of 2"),
                                         MatchesRegex("warning: worker 1 .*; restarting it, restart 2 of 2"), HasSubstr("worker 1")));
  EXPECT_EQ(file("worker-0.log") + file("worker-1.log"), "0\n0\n1\n2\n");
}

TEST_F(ServersAndWorkers, RestartsAreCountedAndNotForWrongInput) {
  job.max_restarts = 1;
  EXPECT_EQ(run(1, 1, "exit 5", "exec sleep 1000"), 5);
  EXPECT_THAT(lines_of(err), ElementsAre(HasSubstr("restart 1 of 1"), HasSubstr("error: server 0")));
  EXPECT_EQ(run(1, 1, "exit 2", "exec sleep 1000"), 2);
  EXPECT_THAT(lines_of(err), ElementsAre(HasSubstr("error: server 0")));
}

TEST_F(ServersAndWorkers, AServerThatLivedForAWhileHasAllItsRestartsAgain) {
  job.max_restarts = 1;
  job.healthy_after = 0s;
  EXPECT_EQ(run(1, 1, "[ $PACELINE_RESTARTS = 3 ] || exit 5; touch $F/done", "await done"), 0) << err;
  EXPECT_THAT(lines_of(err), testing::Each(HasSubstr("restart 1 of 1")));
  EXPECT_EQ(lines_of(err).size(), 3u);
}

TEST_F(ServersAndWorkers, ASignalFromOutsideIsNotAFailureOfAnybody) {
  // A server that saves takes longer than the grace, and is not asked twice.
  job.grace = 50ms;
  const std::string parent = std::to_string(::getpid());
  EXPECT_EQ(run(2, 2, "trap 'sleep 0.4; echo saved; exit 3' TERM; touch $F/s$PACELINE_SERVER; while :; do sleep 0.02; done",
                "await s0; await s1; [ $PACELINE_WORKER = 0 ] && kill -TERM " + parent + "; exec sleep 1000"),
            kStopped);
  EXPECT_THAT(lines_of(out), UnorderedElementsAre("[server 0] saved", "[server 1] saved"));
  EXPECT_THAT(err, Not(HasSubstr("worker")));
}

TEST(JobAddresses, GivesEveryServerAPortOfItsOwn) {
  Job job;
  job.servers = 40;
  job.placement = place_ranks({.hosts = parse_hosts("me@far:30,further:30"), .servers = 40, .workers = 20}, kMachine);
  const JobAddresses addresses(job);
  ASSERT_EQ(job.server_addresses.size(), 40U);
  std::set<std::string> ports;
  for (const std::string& address : job.server_addresses) ports.insert(address.substr(address.find(':')));
  EXPECT_EQ(ports.size(), 40U);
  EXPECT_THAT(job.server_addresses.front(), MatchesRegex("far:[0-9]+"));
  EXPECT_THAT(job.server_addresses.back(), MatchesRegex("further:[0-9]+"));
}

TEST(JobAddresses, TakesWhatTheUserSaysForServerZero) {
  Job job;
  job.servers = 2;
  job.address = "10.0.0.1", job.port = 1234;
  job.placement = place_ranks({.hosts = parse_hosts("here:2,far:1"), .servers = 2, .workers = 1}, kMachine);
  const JobAddresses addresses(job);
  EXPECT_THAT(job.server_addresses, ElementsAre("10.0.0.1:1234", MatchesRegex("10\\.0\\.0\\.1:[0-9]+")));
  EXPECT_NE(job.server_addresses[1], "10.0.0.1:1234");
}

TEST(Variables, OfAWorkerOnAnotherHost) {
  ::unsetenv("OMP_NUM_THREADS");  // which would go along
  Job job;
  job.servers = 1;
  job.server_addresses = {"far:1"};
  job.placement = place_ranks({.hosts = parse_hosts("far:1,further:2"), .servers = 1, .workers = 2}, kMachine);
  EXPECT_THAT(rank_variables(job, job.placement.places[2], 0),
              UnorderedElementsAre("PACELINE_ROLE=worker", "PACELINE_WORKER=1", "PACELINE_SERVERS=far:1", "PACELINE_WORKERS=2",
                                   "PACELINE_RESTARTS=0", "PACELINE_MAX_RESTARTS=0"));
  EXPECT_TRUE(set_by_launcher("PACELINE_SERVERS=a:1"));
  EXPECT_FALSE(set_by_launcher("PACELINE_DATA=/data"));
}

/// What a rank here and two on another host (a shell stands in for ssh) find, in the order of ranks.
std::vector<std::string> found_by_ranks(const std::vector<std::string>& exported, const std::string& script) {
  Job job;
  job.placement = place_ranks({.hosts = parse_hosts("here:1,far:2")}, kMachine);
  job.address = "192.0.2.1";
  job.ssh = {"sh", "-c", "exec sh -c \"$5\""};  // the words before are options and the host
  job.exported = exported;
  job.program = {"sh", "-c", script};
  testing::internal::CaptureStdout();
  EXPECT_EQ(launch(job).code, 0);
  std::vector<std::string> lines = lines_of(testing::internal::GetCapturedStdout());
  std::ranges::sort(lines);
  return lines;
}

TEST(Variables, ThatTheUserExportsAreTheSameOnEveryHost) {
  const std::string script = "echo $OMP_NUM_THREADS $RANK ${#PACELINE_JOB}, $(env | grep -cE '^(OMP_NUM_THREADS|RANK|PACELINE_JOB)=') set";
  const std::vector<std::string> exported = {"OMP_NUM_THREADS=77", "RANK=5", "PACELINE_JOB=mine"};
  for (const char* inherited : {"", "3"}) {
    if (*inherited != '\0') ::setenv("OMP_NUM_THREADS", inherited, 1);
    else ::unsetenv("OMP_NUM_THREADS");
    EXPECT_THAT(found_by_ranks(exported, script), ElementsAre("[0] 77 0 32, 3 set", "[1] 77 1 32, 3 set", "[2] 77 2 32, 3 set"))
        << inherited;
  }
  EXPECT_THAT(found_by_ranks({}, "echo $OMP_NUM_THREADS"), ElementsAre("[0] 3", "[1] 3", "[2] 3"));
  ::unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace paceline::launch

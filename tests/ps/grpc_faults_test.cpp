// Workers and servers over gRPC that come and go, and the tasks they had. Where only a process shows it, this program starts itself again
// as a worker.
#if PACELINE_WITH_GRPC

#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "tests/ps/grpc_fleet.h"

extern char** environ;

#if defined(__SANITIZE_THREAD__)  // gRPC was not built for it, and would seem to be full of races
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- tasks

/// Hands out numbered tasks, and those that were lost again.
struct Work {
  explicit Work(std::int64_t tasks) : left(tasks) {}

  ServiceOptions options() {
    return {.next_task = [this](int, bool, bool& finished) -> std::optional<Task> {
              const std::scoped_lock lock(mutex);
              if (!lost.empty()) {
                const Task task = lost.back();
                lost.pop_back();
                return task;
              }
              finished = left == 0 && done.size() == given;
              if (left == 0) return std::nullopt;
              --left;
              return Task{.epoch = 1, .batch = static_cast<std::int64_t>(given), .step = static_cast<std::int64_t>(given++), .rate = kRate};
            },
            .task_done =
                [this](int worker, const Task& task, double, double, std::int64_t targets) {
                  const std::scoped_lock lock(mutex);
                  done.push_back(task.step);
                  by.push_back(worker);
                  examples += targets;
                },
            .task_lost =
                [this](int worker, const Task& task) {
                  const std::scoped_lock lock(mutex);
                  lost.push_back(task);
                  losers.push_back(worker);
                }};
  }

  std::mutex mutex;
  std::int64_t left, examples = 0;
  std::size_t given = 0;
  std::vector<Task> lost;
  std::vector<std::int64_t> done;
  std::vector<int> by, losers;
};

void work_until_finished(RemoteClient& client) {
  while (const auto task = client.next()) {
    pulled(client);
    auto gradient = gradient_of(client.worker(), static_cast<int>(task->step));
    client.push(gradient.data(), {.rate = task->rate});
    client.done(*task, 1, 2, 3);
  }
}

TEST(Grpc, TasksAreDoneOnce) {
  Work work(40);
  Fleet fleet({.workers = 3}, 2, work.options());
  {
    std::vector<std::jthread> threads;
    for (int w = 0; w < 3; ++w) threads.emplace_back([&] { work_until_finished(*connect(fleet.addresses, layout())); });
  }
  const std::scoped_lock lock(work.mutex);
  std::sort(work.done.begin(), work.done.end());
  ASSERT_EQ(work.done.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(work.done[i], static_cast<std::int64_t>(i));
  EXPECT_EQ(work.examples, 120);
  EXPECT_EQ(fleet.concurrents[0]->with([](Server& server) { return server.version(); }), 40);
}

TEST(Grpc, ATaskOfAWorkerThatLeavesIsHandedBack) {
  Work work(2);
  Fleet fleet({.workers = 2}, 1, work.options());
  auto leaver = connect(fleet.addresses, layout());
  const auto task = leaver->next();
  ASSERT_TRUE(task);
  leaver.reset();
  EXPECT_TRUE(soon([&] { return std::scoped_lock(work.mutex), !work.lost.empty(); }));
  const auto other = connect(fleet.addresses, layout());
  work_until_finished(*other);
  const std::scoped_lock lock(work.mutex);
  EXPECT_THAT(work.done, testing::UnorderedElementsAre(0, 1));
}

// ---- those that go

/// This program again, as a worker that works until it is killed, or that takes a task and is never done with it. The tests below start it.
TEST(GrpcProcess, DISABLED_Worker) {
  const char* address = std::getenv("PACELINE_TEST_SERVER");
  ASSERT_NE(address, nullptr);
  const auto client = connect({address}, layout());
  if (std::getenv("PACELINE_TEST_HOLD") == nullptr) return work_until_finished(*client);
  client->next();
  pulled(*client);
  ::pause();
}

/// And as a server, at the address that it is given.
TEST(GrpcProcess, DISABLED_Server) {
  const char* address = std::getenv("PACELINE_TEST_SERVER");
  ASSERT_NE(address, nullptr);
  GrpcServer server(make_large_host({.wait = 500ms}), large_layout(), keyed({.address = address}));
  ::pause();
}

class Process {
 public:
  enum class Kind { works, holds, serves };
  Process(const std::string& address, Kind kind) {
    ::setenv("PACELINE_TEST_SERVER", address.c_str(), 1);
    if (kind == Kind::holds) ::setenv("PACELINE_TEST_HOLD", "1", 1);
    else ::unsetenv("PACELINE_TEST_HOLD");
    const std::string test = kind == Kind::serves ? "Server" : "Worker";
    std::vector<std::string> words = {"/proc/self/exe", "--gtest_filter=GrpcProcess.DISABLED_" + test, "--gtest_also_run_disabled_tests",
                                      "--gtest_brief=1"};
    std::vector<char*> arguments(words.size() + 1);
    std::ranges::transform(words, arguments.begin(), [](std::string& word) { return word.data(); });
    if (::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) != 0) pid_ = -1;
  }
  ~Process() { end(SIGKILL); }
  void send(int signal) const { ::kill(pid_, signal); }
  void end(int signal) {
    if (pid_ <= 0) return;
    send(signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  bool runs() const { return pid_ > 0; }

 private:
  pid_t pid_ = -1;
};

TEST(GrpcProcess, AKilledWorkerLeavesAndTheRestGoOn) {
  Work work(1'000'000);
  Fleet fleet({.workers = 2}, 1, work.options());
  const auto mine = connect(fleet.addresses, layout(), {.worker = 1});
  Process process(fleet.addresses[0], Process::Kind::works);
  ASSERT_TRUE(process.runs());
  ASSERT_TRUE(soon([&] { return version(fleet) > 3; }));
  EXPECT_THAT(fleet.servers[0]->workers(), ElementsAre(0, 1));
  const auto looks = connect(fleet.addresses, layout(), {.worker = kObserver});
  testing::internal::CaptureStderr();
  process.end(SIGKILL);
  EXPECT_TRUE(soon([&] { return fleet.servers[0]->workers() == std::vector<int>{1, kObserver}; }));
  const std::int64_t then = version(fleet);
  pulled(*mine);
  auto gradient = gradient_of(1, 0);
  EXPECT_EQ(mine->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::applied);
  EXPECT_EQ(version(fleet), then + 1);
  fleet.servers.clear();  // whatever it says is said
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is lost: its stream broke; 1 other continues\n"));
}

TEST(GrpcProcess, AStoppedWorkerIsForgottenAndItsTaskHandedBack) {
  Work work(2);
  Fleet fleet({.consistency = "bsp", .workers = 2, .limits = {.wait = 20s, .silence = 400ms}}, 1, work.options());
  const auto mine = connect(fleet.addresses, layout(), {.worker = 1});
  Process process(fleet.addresses[0], Process::Kind::holds);
  ASSERT_TRUE(process.runs());
  ASSERT_TRUE(soon([&] { return std::scoped_lock(work.mutex), work.given == 1; }));
  pulled(*mine);
  auto gradient = gradient_of(1, 0);
  EXPECT_EQ(mine->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::gathered);
  std::this_thread::sleep_for(800ms);
  EXPECT_THAT(fleet.servers[0]->workers(), ElementsAre(0, 1));  // it computes for longer than the limit, but it beats
  process.send(SIGSTOP);
  pulled(*mine);  // waits until worker 0 is forgotten
  EXPECT_EQ(version(fleet), 1);
  EXPECT_TRUE(soon([&] { return std::scoped_lock(work.mutex), work.losers == std::vector<int>{0}; }));
  EXPECT_EQ(mine->next()->step, 0);
}

TEST(Grpc, WhoeverWaitsForALateWorkerGetsAPeerError) {
  Fleet fleet({.consistency = "bsp", .workers = 2, .limits = {.wait = 200ms, .silence = 30s}}, 1);
  const auto late = connect(fleet.addresses, layout()), prompt = connect(fleet.addresses, layout());
  pulled(*late), pulled(*prompt);
  auto gradient = gradient_of(0, 0);
  prompt->push(gradient.data(), {.rate = kRate});
  try {
    pulled(*prompt);
    FAIL() << "the pull did not wait for the late worker";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker 0"));
    EXPECT_EQ(error.operation(), "pull");
  }
  gradient = gradient_of(0, 1);
  late->push(gradient.data(), {.rate = kRate});
  EXPECT_NO_THROW(pulled(*prompt));  // the stream has outlived the error
}

TEST(Grpc, WhoeverLeavesNoLongerHoldsUpTheOthers) {
  Fleet fleet({.consistency = "bsp", .workers = 2}, 2);
  auto leaver = connect(fleet.addresses, layout());
  const auto stayer = connect(fleet.addresses, layout());
  pulled(*leaver), pulled(*stayer);
  auto gradient = gradient_of(1, 0);
  EXPECT_EQ(stayer->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::gathered);
  std::jthread later([&] { leaver.reset(); });
  pulled(*stayer);
  EXPECT_EQ(version(fleet), 1);
}

TEST(Grpc, ANewWorkerMayComeAnyTime) {
  Fleet fleet({.workers = 1}, 2);
  const auto first = connect(fleet.addresses, layout());
  pulled(*first);
  auto gradient = gradient_of(0, 0);
  first->push(gradient.data(), {.rate = kRate});
  const auto second = connect(fleet.addresses, layout());
  EXPECT_EQ(second->worker(), 1);
  EXPECT_EQ(pulled(*second), pulled(*first));
  gradient = gradient_of(1, 0);
  EXPECT_EQ(second->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::applied);
  EXPECT_EQ(version(fleet), 2);
}

TEST(Grpc, AServerThatComesBackIsJoinedAgain) {
  Fleet fleet({}, 2);
  const auto client = connect(fleet.addresses, layout());
  const auto start = pulled(*client);
  fleet.servers[1].reset();
  auto gradient = gradient_of(0, 0);
  std::jthread restart([&] {
    std::this_thread::sleep_for(100ms);
    fleet.concurrents[1] = make_concurrent({}, fleet.cuts[1], fleet.cuts[2]);
    fleet.servers[1] = std::make_unique<GrpcServer>(
        fleet.concurrents[1], layout(), keyed(ServiceOptions{.address = fleet.addresses[1], .begin = fleet.cuts[1], .end = fleet.cuts[2]}));
  });
  client->push(gradient.data(), {.rate = kRate});  // waits for the second server, which then does not know of the pull
  restart.join();
  EXPECT_EQ(fleet.servers[1]->workers(), std::vector<int>{0});
  const auto after = pulled(*client);
  EXPECT_NE(after[0], start[0]);
  EXPECT_EQ(after[kLength - 100], start[kLength - 100]);
  gradient = gradient_of(0, 1);
  EXPECT_EQ(client->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::applied);
  EXPECT_NE(pulled(*client)[kLength - 100], start[kLength - 100]);
}

/// As ps.snapshot_s keeps it: all that a server has, for another one to go on with.
std::shared_ptr<ConcurrentServer> restored(ConcurrentServer& lost, const ServerSettings& settings, std::int64_t begin, std::int64_t end) {
  const auto concurrent = make_concurrent(settings, begin, end);
  concurrent->with([&](Server& mine) {
    lost.with([&](Server& server) {
      std::copy_n(server.parameters(), server.length(), mine.parameters());
      mine.load(server.numbers(), server.rule_state(), Server::InProgress::missing);
      for (std::size_t i = 0; i < server.arrays().size(); ++i)
        std::copy_n(server.arrays()[i].data, server.arrays()[i].count, mine.arrays()[i].data);
    });
  });
  concurrent->begin_again();
  return concurrent;
}

// Worker 0 has pulled when the second server is lost, and worker 1 pulls from the one after it: their rounds stay those of the first
// server.
TEST(Grpc, ARestoredServerTakesPartInTheOthersRounds) {
  const ServerSettings settings{.rule = "average", .consistency = "bsp", .workers = 2};
  Fleet fleet(settings, 2);
  const auto early = connect(fleet.addresses, layout(), {.worker = 0}), late = connect(fleet.addresses, layout(), {.worker = 1});
  const auto push = [](RemoteClient& client, int step) {
    auto gradient = gradient_of(client.worker(), step);
    return client.push(gradient.data(), {.rate = kRate}).fate;
  };
  pulled(*early), pulled(*late);
  push(*early, 0), push(*late, 0);
  pulled(*early);
  const auto concurrent = restored(*fleet.concurrents[1], settings, fleet.cuts[1], fleet.cuts[2]);
  fleet.servers[1].reset();
  fleet.concurrents[1] = concurrent;
  fleet.servers[1] = std::make_unique<GrpcServer>(
      concurrent, layout(), keyed(ServiceOptions{.address = fleet.addresses[1], .begin = fleet.cuts[1], .end = fleet.cuts[2]}));
  push(*early, 1);  // dropped by the second server, which does not wait for this worker before its next pull
  pulled(*late);
  push(*late, 1);
  const auto versions = [&] {
    const auto of = [](Server& server) { return server.version(); };
    return std::pair(fleet.concurrents[0]->with(of), fleet.concurrents[1]->with(of));
  };
  EXPECT_EQ(versions(), std::pair(std::int64_t{2}, std::int64_t{2}));
  EXPECT_EQ(pulled(*early), pulled(*late));  // nobody waits: both servers are between two rounds
  push(*early, 2);
  EXPECT_EQ(versions(), std::pair(std::int64_t{2}, std::int64_t{2}));
  push(*late, 2);
  EXPECT_EQ(versions(), std::pair(std::int64_t{3}, std::int64_t{3}));
}

TEST(Grpc, PatienceEnds) {
  Fleet fleet({}, 1);
  const auto client = connect(fleet.addresses, layout(), {.patience = 300ms});
  fleet.servers.clear();
  EXPECT_THROW(pulled(*client), PeerError);
}

TEST(Grpc, AServerThatEndsLetsGoOfWhoeverWaits) {
  Fleet fleet({.consistency = "bsp", .workers = 2}, 1);
  const auto client = connect(fleet.addresses, layout(), {.patience = 300ms});
  pulled(*client);
  auto gradient = gradient_of(0, 0);
  client->push(gradient.data(), {.rate = kRate});
  std::jthread waiting([&] { EXPECT_THROW(pulled(*client), PeerError); });  // for worker 1, which never comes
  std::this_thread::sleep_for(50ms);
  fleet.servers.clear();
}

/// A server that neither answers nor breaks off: what is under way to it sticks in the sockets, and the worker must get its memory back.
TEST(SlowGrpcProcess, AStoppedServerIsGivenUp) {
  const std::string address = GrpcServer(make_concurrent({}), layout(), keyed({})).address();  // one that is free
  Process process(address, Process::Kind::serves);
  ASSERT_TRUE(process.runs());
  const auto client = connect({address}, large_layout(), {.deadline = 500ms, .patience = 1s});
  std::vector<float> parameters(kMany), gradient(kMany, 1);
  client->pull(parameters.data(), 1);
  process.send(SIGSTOP);
  EXPECT_THROW(client->push(gradient.data(), {.rate = 1}), PeerError);
  process.end(SIGKILL);
}

}  // namespace
}  // namespace paceline::ps

#endif

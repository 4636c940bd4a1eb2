// Workers over gRPC whose servers are killed and come back with their journals: they ask again, and every minibatch counts once.
#if PACELINE_WITH_GRPC

#include <gmock/gmock.h>

#include <atomic>

#include "paceline/base/temporary_folder.h"
#include "tests/ps/grpc_fleet.h"

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

/// Two servers that keep what they acknowledge, and whom tests may kill; the first deals out minibatches 1, 2, ….
class Keeping : public testing::Test {
 protected:
  Keeping() {
    cuts_ = cut_ranges(segments_of(layout()), kLength, 2, true);
    for (const int i : {0, 1}) start(i, "127.0.0.1:0");
    for (const auto& server : servers_) addresses_.push_back(server->address());
  }

  std::unique_ptr<RemoteClient> worker(int number) { return connect(addresses_, layout(), {.worker = number}); }

  void start(int index, const std::string& address) {
    const auto i = static_cast<std::size_t>(index);
    concurrents_[i] = make_concurrent(settings_, cuts_[i], cuts_[i + 1]);
    Journals journals(folder_ / std::to_string(i));
    concurrents_[i]->with([&](Server& server) { journals.replay(server, 0); });
    concurrents_[i]->write_to(journals.next());
    if (!addresses_.empty()) concurrents_[i]->begin_again();
    ServiceOptions options{.address = address, .begin = cuts_[i], .end = cuts_[i + 1], .durable = true};
    if (index == 0) {
      options.next_task = [this](int, bool, bool&) { return Task{.step = ++dealt_, .rate = kRate}; };
      options.task_done = [this](int, const Task& task, double, double, std::int64_t) { done_ = task.step; };
    }
    servers_[i] = std::make_unique<GrpcServer>(concurrents_[i], layout(), keyed(options));
  }

  void stop(int index) { servers_[static_cast<std::size_t>(index)].reset(); }
  /// Whoever asks meanwhile waits for it.
  void come_back(int index) { start(index, addresses_[static_cast<std::size_t>(index)]); }

  std::vector<std::int64_t> versions() const {
    std::vector<std::int64_t> all;
    for (const auto& concurrent : concurrents_) all.push_back(concurrent->with([](Server& server) { return server.version(); }));
    return all;
  }

  static void push(RemoteClient& client) {
    auto gradient = gradient_of(client.worker(), 0);
    client.push(gradient.data(), {.rate = kRate});
  }

  const TemporaryFolder folder_;
  const ServerSettings settings_{.workers = 2};
  std::vector<std::int64_t> cuts_;
  std::array<std::shared_ptr<ConcurrentServer>, 2> concurrents_;
  std::array<std::unique_ptr<GrpcServer>, 2> servers_;
  std::vector<std::string> addresses_;
  std::atomic<std::int64_t> dealt_ = 0, done_ = 0;
};

TEST_F(Keeping, APushIsBroughtToAServerThatWasKilledInBetween) {
  for (const int killed : {0, 1}) {
    const auto client = worker(0);
    const auto before = versions();
    client->next();
    pulled(*client);
    stop(killed);
    std::jthread restart([&] { come_back(killed); });
    push(*client);
    restart.join();
    EXPECT_THAT(versions(), ElementsAre(before[0] + 1, before[1] + 1)) << killed;
    push(*client);  // as if the answer had been lost
    EXPECT_THAT(versions(), ElementsAre(before[0] + 1, before[1] + 1)) << killed;
  }
}

TEST_F(Keeping, AWorkerThatDiedBetweenTwoServersIsMadeUpForWhereItIsMissing) {
  const auto lost = worker(0);
  const auto task = lost->next();
  pulled(*lost);
  auto part = gradient_of(0, 0);
  concurrents_[0]->push(0, part.data(), {.rate = kRate, .number = task->step});
  EXPECT_THAT(versions(), ElementsAre(1, 0));
  dealt_ = 0;  // it is dealt out again
  const auto other = worker(1);
  EXPECT_EQ(other->next()->step, task->step);
  pulled(*other);
  push(*other);
  EXPECT_THAT(versions(), ElementsAre(1, 1));
  push(*lost);  // it was not dead after all
  EXPECT_THAT(versions(), ElementsAre(1, 1));
}

TEST_F(Keeping, TheFirstServerHearsOfWhatWasDoneWhileItWasGone) {
  const auto client = worker(0);
  const auto task = client->next();
  pulled(*client);
  push(*client);
  stop(0);
  std::jthread restart([&] { come_back(0); });
  client->done(*task, 1, 1, 1);
  restart.join();
  EXPECT_EQ(done_, task->step);
  EXPECT_THAT(versions(), ElementsAre(1, 1));
}

}  // namespace
}  // namespace paceline::ps

#endif

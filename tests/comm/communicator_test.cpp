// What happens when ranks do not do what they should, and what decorators add.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <latch>
#include <set>
#include <thread>

#include "paceline/base/random.h"
#include "ranks.h"

namespace paceline::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

Options quick(std::string algorithm = "auto") {
  return {.op = ReduceOp::sum, .root = 0, .algorithm = std::move(algorithm), .deadline = milliseconds(300)};
}

class EveryWay : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, EveryWay, testing::Values("direct", "ring", "tree", "butterfly", "recursive_doubling"));

TEST_P(EveryWay, AMissingRankIsNamedAtTheDeadline) {
  std::latch over(2);
  const auto problems = play(3, {}, [&](Communicator& comm) {
    std::vector<float> values(5000);
    comm.run(allreduce(values));
    if (comm.rank() == 2) return over.wait();  // alive, but never comes
    try {
      comm.run(allreduce(values, quick(GetParam())));
      FAIL() << "rank " << comm.rank() << " did not notice";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.operation(), "allreduce");
      EXPECT_EQ(error.step(), 2);
      EXPECT_GE(error.rank(), 0);
      // Who waits for a rank that waits may hear from it first.
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("did not come within 0.3 s"), HasSubstr("gave up because of rank 2")));
      EXPECT_THAT(error.what(), HasSubstr("sequence 2"));
    }
    over.count_down();
  });
  for (const auto& problem : problems) EXPECT_EQ(problem, "");
}

TEST_P(EveryWay, ARankThatLeftIsNamedAtOnce) {
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<float> values(5000);
    if (comm.rank() == 1) throw Error("this rank has a bug");
    comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = GetParam(), .deadline = {}}));  // the deadline is 30 s away
  });
  EXPECT_THAT(problems[0], AllOf(HasSubstr("rank 1 left"), HasSubstr("allreduce of 5000 fp32")));
}

TEST_P(EveryWay, AWorkThatFailsSaysSoWhenItIsWaitedFor) {
  const auto problems = play(2, {}, [&](Communicator& comm) {
    if (comm.rank() == 1) throw Error("this rank has a bug");
    std::vector<float> first(100), second(100);
    const Work one = comm.start(allreduce(first, {.op = ReduceOp::sum, .root = 0, .algorithm = GetParam(), .deadline = {}}));
    const Work two = comm.start(allreduce(second));
    EXPECT_THROW(one.wait(), PeerError);
    EXPECT_THROW(two.wait(), PeerError);
    EXPECT_THROW(comm.run(barrier()), PeerError);  // of no more use
  });
  EXPECT_EQ(problems[0], "");
}

TEST(Communicator, NamesWhatRanksCalledWhereTheyDiffer) {
  const auto problems = play(2, {}, [](Communicator& comm) {
    std::vector<float> values(comm.rank() == 0 ? 100 : 200);
    comm.run(allreduce(values));
  });
  EXPECT_THAT(problems[0], AllOf(HasSubstr("rank 1 called allreduce of 200 fp32"), HasSubstr("rank 0 called allreduce of 100 fp32")));
  EXPECT_THAT(problems[1], HasSubstr("rank 0 called allreduce of 100 fp32"));
}

TEST(Communicator, AnAlgorithmOfTheRecipeLeavesToRingWhatItDoesNotOffer) {
  for (const auto& row : schedule::algorithms()) {
    CommConfig config;
    config.algorithm = row.key;
    const auto problems = play(4, config, [](Communicator& comm) {
      std::vector<float> told = {comm.rank() == 2 ? 5.f : 0.f}, sum = {1};
      std::vector<float> parts(8, static_cast<float>(comm.rank())), exchanged(8);
      comm.run(broadcast(told, {.op = ReduceOp::sum, .root = 2, .algorithm = {}, .deadline = {}}));
      comm.run(allreduce(sum));
      comm.run(all_to_all(parts, exchanged));
      comm.run(barrier());
      EXPECT_EQ(told[0], 5);
      EXPECT_EQ(sum[0], 4);
      EXPECT_EQ(exchanged, (std::vector<float>{0, 0, 1, 1, 2, 2, 3, 3}));
    });
    for (const auto& problem : problems) EXPECT_EQ(problem, "") << row.key;
  }
}

TEST(Communicator, RefusesWhatCannotBe) {
  play(1, {}, [](Communicator& comm) {
    std::vector<float> values(10), other(11);
    EXPECT_THROW(comm.run(broadcast(values, {.op = ReduceOp::sum, .root = 1, .algorithm = {}, .deadline = {}})), ConfigError);
    EXPECT_THROW(comm.run(send(values, 0)), ConfigError);
    EXPECT_THROW(comm.run(send(values, 5)), ConfigError);
    EXPECT_THROW(comm.run(all_to_all(values, other)), ConfigError);
    EXPECT_THROW(comm.run(all_to_all(values, values)), ConfigError);
    EXPECT_THROW(comm.run(all_to_all(Buffer(values.data(), 5), Buffer(values.data() + 4, 5))), ConfigError);
    EXPECT_THROW(comm.run(all_to_all(Buffer(values.data() + 4, 5), Buffer(values.data(), 5))), ConfigError);
    EXPECT_NO_THROW(comm.run(all_to_all(Buffer(values.data(), 5), Buffer(values.data() + 5, 5))));
    EXPECT_THROW(comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = "rings", .deadline = {}})), ConfigError);
    EXPECT_THROW(comm.run(allreduce(Buffer(values.data(), 10, DType::f32, nullptr), quick("ring"))), ConfigError);
  });
}

TEST(Communicator, ARefusedCallLeavesTheOthersWhereTheyAre) {
  const auto problems = play(2, {}, [](Communicator& comm) {
    std::vector<float> values(100, 1);
    if (comm.rank() == 0) {
      EXPECT_THROW(comm.run(allreduce(values, quick("rings"))), ConfigError);
      EXPECT_THROW(comm.start(allreduce(values, quick("rings"))), ConfigError);
      EXPECT_THROW(comm.run(broadcast(values, quick("butterfly"))), ConfigError);  // which has none
      EXPECT_THROW(comm.run(all_to_all(values, values)), ConfigError);
    }
    for (const char* algorithm : {"ring", "direct"})
      comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = algorithm, .deadline = std::chrono::seconds(10)}));
    EXPECT_EQ(values.back(), 4);
  });
  EXPECT_THAT(problems, testing::Each(""));
}

// NaNs with different payloads and zeros of both signs: combined in any order and grouping, they give the same bits.
TEST(Communicator, EveryAlgorithmGivesAllRanksTheSameLeastAndGreatest) {
  constexpr int kRanks = 4;
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::set<std::string> results;
    for (const auto& row : schedule::algorithms()) {
      if (!row.make.offer(schedule::Collective::allreduce)) continue;
      std::vector<std::string> bits(kRanks);
      const auto problems = play(kRanks, {}, [&](Communicator& comm) {
        std::vector<float> values(203, static_cast<float>(comm.rank()));
        for (std::size_t i = 0; i < values.size(); i += 3) values[i] = comm.rank() % 2 == 0 ? 0.0f : -0.0f;
        if (comm.rank() == 1) std::fill_n(values.begin(), 100, NAN);
        if (comm.rank() == 2) std::fill_n(values.begin() + 50, 100, std::bit_cast<float>(0xffe00000u));
        comm.run(allreduce(values, {.op = op, .root = 0, .algorithm = std::string(row.key), .deadline = {}}));
        bits[static_cast<std::size_t>(comm.rank())].assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i < 150) << row.key << " " << i;
      });
      EXPECT_THAT(problems, testing::Each("")) << row.key;
      results.insert(bits.begin(), bits.end());
      EXPECT_EQ(results.size(), 1u) << row.key << " " << name_of(op);
    }
  }
}

// A schedule fixes the order of additions, so the way that messages or memory are carried does not change a bit.
TEST(Communicator, HasTheSameBitsWhateverCarriesIt) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kCount = 200003;
  const auto result = [&](std::int64_t per_host, const std::string& algorithm, bool shared_memory) {
    std::vector<float> answer;
    CommConfig config;
    config.per_host = per_host;
    play(kRanks, config, [&](Communicator& comm) {
      std::vector<float> values(kCount);
      RandomStream stream(3, Purpose::test, static_cast<std::uint64_t>(comm.rank()));
      for (float& value : values) value = stream.normal();
      const Memory memory = comm.allocate(kCount * 4);
      float* data = shared_memory ? static_cast<float*>(memory.get()) : values.data();
      if (shared_memory) std::memcpy(data, values.data(), kCount * 4);
      comm.run(allreduce(Buffer(data, kCount), {.op = ReduceOp::mean, .root = 0, .algorithm = algorithm, .deadline = {}}));
      if (comm.rank() == 1) answer.assign(data, data + kCount);
    });
    return answer;
  };
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
  };
  // per_host=1: nobody shares memory, so that `direct` goes by messages.
  const std::vector<float> direct = result(0, "direct", true);
  EXPECT_TRUE(same(direct, result(0, "direct", false)));
  EXPECT_TRUE(same(direct, result(1, "direct", false)));
  EXPECT_TRUE(same(direct, result(1, "direct", true)));
  const std::vector<float> ring = result(0, "ring", false);
  EXPECT_TRUE(same(ring, result(1, "ring", true)));
  EXPECT_FALSE(same(ring, direct));  // three numbers added in two orders
}

TEST(Record, SaysWhatTheMissingRankDidLast) {
  std::latch over(1);
  testing::internal::CaptureStderr();
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<float> values(64);
    comm.run(broadcast(values));
    if (comm.rank() == 1) return over.wait();
    try {
      comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = std::chrono::seconds(1)}));
      ADD_FAILURE() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("last known operation of rank 1: broadcast of 64 fp32 from rank 0"));
    }
    over.count_down();
  });
  EXPECT_EQ(problems[1], "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("rank 0, operation 2: allreduce of 64 fp32")) << "what this rank did";
}

// The log of each rank says when it came to its operations, so that the logs show who came last; what was only polled has ended as well.
TEST(Record, ShowsWhenThisRankCameToItsLastOperations) {
  std::latch over(1);
  testing::internal::CaptureStderr();
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<float> values(64);
    for (const Work work = comm.start(broadcast(values)); !work.done();) std::this_thread::yield();
    if (comm.rank() == 1) return over.wait();
    EXPECT_THROW(comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = milliseconds(200)})), PeerError);
    over.count_down();
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(problems[1], "");
  EXPECT_THAT(log, ContainsRegex("operation 1: broadcast of 64 fp32 from rank 0, arrived [0-9:.]+ UTC, took "));
  EXPECT_THAT(log, ContainsRegex("operation 2: allreduce of 64 fp32 .*, arrived [0-9:.]+ UTC, in flight for "));
}

TEST(Check, NamesAMismatchBeforeAnybodyHangs) {
  CommConfig config;
  config.check = true;
  config.algorithm = "ring";  // a schedule alone would wait for messages that never come
  const auto problems = play(3, config, [](Communicator& comm) {
    std::vector<float> values(100);
    comm.run(comm.rank() == 2 ? all_gather(values) : allreduce(values));
  });
  for (const auto& problem : problems)
    EXPECT_THAT(problem, AllOf(HasSubstr("rank 0 called allreduce of 100 fp32"), HasSubstr("rank 2 called all_gather of 100 fp32")));
}

TEST(Fault, FailsTheRankAndOperationItIsTold) {
  CommConfig config;
  config.fail_at = {1, 3};
  testing::internal::CaptureStderr();
  const auto problems = play(2, config, [](Communicator& comm) {
    std::vector<float> values(10);
    for (int i = 0; i < 5; ++i) comm.run(allreduce(values));
  });
  EXPECT_THAT(problems[1], HasSubstr("its operation 3"));
  EXPECT_THAT(problems[0], HasSubstr("rank 1 left"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "who leaves says why; what the others did is of no use";
}

// Never faster than the link: 2 MB each way at 0.8 Gbit/s is 20 ms, and the ring makes two steps with half of it each.
TEST(Shape, TakesAsLongAsTheLinkWould) {
  CommConfig config;
  config.link_gbit_per_s = 0.8;
  config.link_latency_us = 500;
  config.algorithm = "ring";
  const auto problems = play(2, config, [](Communicator& comm) {
    EXPECT_EQ(comm.topology().hosts, 2);
    std::vector<float> values(500000, 1.0f);
    comm.run(barrier());
    const auto began = std::chrono::steady_clock::now();
    comm.run(allreduce(values));
    EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(20));
    EXPECT_EQ(values.back(), 2.0f);
  });
  for (const auto& problem : problems) EXPECT_EQ(problem, "");
}

// The group of ranks 0, 2 and 3 is uneven, yet 2 and 3 are on one host: what they say to one another does not cross the link, which would
// take half a minute.
TEST(Shape, LeavesAHostAloneAlsoInAnUnevenGroup) {
  CommConfig config;
  config.per_host = 2;
  config.link_gbit_per_s = 0.001;
  const auto problems = play(4, config, [](Communicator& comm) {
    const auto group = comm.split(comm.rank() == 1, 0);
    std::vector<float> values(1 << 20, static_cast<float>(comm.rank()));
    const Options soon{.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = std::chrono::seconds(10)};
    if (comm.rank() == 2) group->run(send(values, 2, 0, soon));
    if (comm.rank() != 3) return;
    group->run(receive(values, 1, 0, soon));
    EXPECT_EQ(values.back(), 2);
  });
  EXPECT_THAT(problems, testing::Each(""));
}

}  // namespace
}  // namespace paceline::comm

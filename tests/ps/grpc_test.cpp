// Parameter servers over gRPC on loopback: the same numbers as in one process, compressed or not, and what is refused.
#include "paceline/ps/transports/grpc.h"

#include <gmock/gmock.h>

#include <limits>

#include "paceline/base/error.h"
#include "tests/ps/grpc_fleet.h"

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

#if PACELINE_WITH_GRPC

// ---- the same numbers

class GrpcEqual : public testing::TestWithParam<std::tuple<int, int, std::string>> {};

/// Workers by turns, one event after the other; the oracle is the same order of events on one server in this process.
TEST_P(GrpcEqual, InProcess) {
  const auto [servers, workers, consistency] = GetParam();
  const ServerSettings settings{.consistency = consistency, .workers = workers};
  Fleet fleet(settings, servers);
  const auto oracle = make_concurrent(settings);
  std::vector<std::unique_ptr<RemoteClient>> remote;
  std::vector<std::unique_ptr<Client>> local;
  for (int w = 0; w < workers; ++w) {
    remote.push_back(connect(fleet.addresses, layout()));
    EXPECT_EQ(remote.back()->worker(), w);
    local.push_back(make_in_process_client({oracle}, {0, kLength}, w));
  }
  for (int step = 0; step < 4; ++step) {
    for (int w = 0; w < workers; ++w) ASSERT_EQ(pulled(*remote[w]), pulled(*local[w])) << "worker " << w << ", step " << step;
    for (int w = 0; w < workers; ++w) {
      auto there = gradient_of(w, step), here = there;
      const Push push{.rate = kRate, .scale = 0.5f, .loss = 1.0 / (1 + step)};
      EXPECT_EQ(remote[w]->push(there.data(), push), local[w]->push(here.data(), push));
    }
  }
  EXPECT_EQ(pulled(*remote[0]), pulled(*local[0]));
  oracle->with([&](Server& mine) {
    for (const auto& concurrent : fleet.concurrents) {
      EXPECT_EQ(concurrent->with([](Server& server) { return server.version(); }), mine.version());
      EXPECT_EQ(concurrent->with([](Server& server) { return server.staleness(); }), mine.staleness());
    }
    EXPECT_GT(mine.version(), 0);
    return 0;
  });
}

INSTANTIATE_TEST_SUITE_P(Fleets, GrpcEqual,
                         testing::Combine(testing::Values(1, 2), testing::Values(1, 2, 3), testing::Values("asp", "bsp")),
                         [](const auto& instance) {
                           return "servers" + std::to_string(std::get<0>(instance.param)) + "_workers" +
                                  std::to_string(std::get<1>(instance.param)) + "_" + std::get<2>(instance.param);
                         });

TEST(Grpc, WorkersAtTheSameTimeUnderBspGetTheSerialResult) {
  constexpr int kWorkers = 3, kSteps = 5;
  const ServerSettings settings{.consistency = "bsp", .workers = kWorkers};
  Fleet fleet(settings, 2);
  std::vector<std::vector<float>> last(kWorkers);
  {
    std::vector<std::jthread> threads;
    for (int w = 0; w < kWorkers; ++w)
      threads.emplace_back([&, w] {
        const auto client = connect(fleet.addresses, layout(), {.worker = w});
        for (int step = 0; step < kSteps; ++step) {
          pulled(*client);
          auto gradient = gradient_of(w, step);
          client->push(gradient.data(), {.rate = kRate});
        }
        last[static_cast<std::size_t>(w)] = pulled(*client);
      });
  }
  // Momentum 0.5, the mean of three gradients; sums of sixteenths are exact in any order, thirds are not.
  std::vector<double> parameters(kLength), momentum(kLength);
  for (std::int64_t i = 0; i < kLength; ++i) parameters[static_cast<std::size_t>(i)] = static_cast<double>(i % 17);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> mean(kLength);
    for (int w = 0; w < kWorkers; ++w) {
      const auto gradient = gradient_of(w, step);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / kWorkers;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) momentum[i] = 0.5 * momentum[i] + mean[i], parameters[i] -= kRate * momentum[i];
  }
  for (const auto& seen : last)
    for (const auto& entry : layout().entries)
      for (std::int64_t i = entry.offset; i < entry.offset + entry.count; ++i)
        ASSERT_NEAR(seen[static_cast<std::size_t>(i)], parameters[static_cast<std::size_t>(i)], 1e-5) << "element " << i;
}

TEST(Grpc, LargePayloadsComeInPieces) {
  const auto concurrent = make_large_host();
  GrpcServer server(concurrent, large_layout(), keyed({}));
  const auto client = connect({server.address()}, large_layout());
  std::vector<float> parameters(kMany, 5), gradient(kMany);
  client->pull(parameters.data(), 1);
  for (std::int64_t i = 0; i < kMany; ++i) gradient[static_cast<std::size_t>(i)] = static_cast<float>(i % 1001);
  client->push(gradient.data(), {.rate = 1});
  client->pull(parameters.data(), 1);
  for (std::int64_t i = 0; i < kMany; ++i) ASSERT_EQ(parameters[static_cast<std::size_t>(i)], -static_cast<float>(i % 1001)) << i;
}

TEST(Grpc, ReplicasComeBackChanged) {
  const ServerSettings settings{.rule = "easgd"};
  Fleet fleet(settings, 2);
  const auto oracle = make_concurrent(settings);
  const auto remote = connect(fleet.addresses, layout());
  const auto local = make_in_process_client({oracle}, {0, kLength}, 0);
  pulled(*remote), pulled(*local);
  auto there = gradient_of(0, 0), here = there;
  remote->push(there.data(), {.rate = kRate}), local->push(here.data(), {.rate = kRate});
  EXPECT_NE(there, gradient_of(0, 0));
  EXPECT_EQ(there, here);
  remote->pull(nullptr, kRate), local->pull(nullptr, kRate);  // the replica has come back already
  EXPECT_EQ(remote->push(there.data(), {.rate = kRate}), local->push(here.data(), {.rate = kRate}));
  EXPECT_EQ(there, here);
}

TEST(Grpc, ReportsGetAdviceAndMoveTheStatistics) {
  Fleet fleet({.rule = "lc_asgd"}, 2);
  const auto oracle = make_concurrent({.rule = "lc_asgd"});
  const auto remote = connect(fleet.addresses, layout());
  const auto local = make_in_process_client({oracle}, {0, kLength}, 0);
  const std::vector<float> statistics = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < 3; ++i) {
    const Report report{.loss = 2.0 - 0.1 * i, .t_comm_s = 0.01, .t_comp_s = 0.1};
    const Advice there = remote->report(report, statistics.data()), here = local->report(report, statistics.data());
    EXPECT_EQ(there.scale, here.scale);
    EXPECT_EQ(there.steps, here.steps);
    EXPECT_EQ(there.delay, here.delay);
  }
  const auto statistics_of = [](ConcurrentServer& concurrent) {
    return concurrent.with([](Server& s) { return std::vector<float>(s.statistics(), s.statistics() + 8); });
  };
  EXPECT_EQ(statistics_of(*fleet.concurrents[0]), statistics_of(*oracle));
  EXPECT_GT(statistics_of(*oracle)[7], 0);
  EXPECT_NO_THROW(remote->report({.loss = 1}, nullptr));
}

TEST(Grpc, TellsWhatIsCancelled) {
  Fleet fleet({.consistency = "k_sync", .workers = 2}, 1);  // K = 1 of 2: the second gradient of a round is dropped
  const auto fast = connect(fleet.addresses, layout()), slow = connect(fleet.addresses, layout());
  pulled(*fast), pulled(*slow);
  EXPECT_FALSE(slow->cancelled());
  auto gradient = gradient_of(0, 0);
  EXPECT_EQ(fast->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::applied);
  EXPECT_TRUE(soon([&] { return slow->cancelled(); }));
  EXPECT_TRUE(slow->report({.loss = 1}, nullptr).cancelled);
}

// ---- what is refused

TEST(Grpc, AnotherModelIsRefusedWithTheDifference) {
  Fleet fleet({}, 1);
  ArenaLayout other = layout();
  other.entries[2].shape = {41, 23};
  try {
    connect(fleet.addresses, other);
    FAIL() << "the server took a worker with another model";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.weight is [41, 23] here and [23, 41] there"));
  }
  EXPECT_NO_THROW(pulled(*connect(fleet.addresses, layout())));
}

TEST(Grpc, AnotherRecipeIsRefusedWithTheDifference) {
  Fleet fleet({}, 1, {.terms = "data.batch=64\nparallel.workers=4\ntrain.seed=1\n"});
  try {
    connect(fleet.addresses, layout(), {.terms = "data.batch=128\nparallel.workers=3\ntrain.seed=1\n"});
    FAIL() << "the server took a worker with another recipe";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.batch is 128 here and 64 there, parallel.workers is 3 here and 4 there;"));
  }
  EXPECT_THROW(connect(fleet.addresses, layout()), ConfigError);
  EXPECT_NO_THROW(connect(fleet.addresses, layout(), {.terms = "train.seed=1\nparallel.workers=4\ndata.batch=64\n"}));
}

TEST(Grpc, ANumberIsGivenOnce) {
  Fleet fleet({}, 1);
  const auto first = connect(fleet.addresses, layout(), {.worker = 5});
  EXPECT_EQ(first->worker(), 5);
  EXPECT_THROW(connect(fleet.addresses, layout(), {.worker = 5}), ConfigError);
  EXPECT_THROW(connect(fleet.addresses, layout(), {.worker = 1 << 20}), ConfigError);
  EXPECT_EQ(connect(fleet.addresses, layout())->worker(), 0);
}

TEST(Grpc, AddressesMustBeTheWholeModelInOrder) {
  Fleet fleet({}, 2);
  EXPECT_THROW(connect({fleet.addresses[1], fleet.addresses[0]}, layout()), ConfigError);
  EXPECT_THROW(connect({fleet.addresses[0]}, layout()), ConfigError);
  EXPECT_THROW(connect({}, layout()), ConfigError);
  EXPECT_THROW(connect({"nonsense"}, layout()), ConfigError);
}

TEST(Grpc, OtherHostsNeedCertificates) {
  const auto concurrent = make_concurrent({});
  EXPECT_THROW(GrpcServer(concurrent, layout(), keyed({.address = "0.0.0.0:0"})), ConfigError);
  EXPECT_THROW(GrpcServer(concurrent, layout(), keyed({.security = {.certificate = "half.pem"}})), ConfigError);
  EXPECT_NO_THROW(GrpcServer(concurrent, layout(), keyed({.address = "0.0.0.0:0", .security = {.allow_insecure = true}})));
  EXPECT_THROW(connect({"192.0.2.1:4711"}, layout()), ConfigError);
}

TEST(Grpc, APortThatIsTakenIsAnError) {
  Fleet fleet({}, 1);
  EXPECT_THROW(GrpcServer(make_concurrent({}), layout(), keyed({.address = fleet.addresses[0]})), ConfigError);
}

TEST(Grpc, NoServerIsAPeerErrorThatNamesTheAddress) {
  try {
    connect({"127.0.0.1:1"}, layout(), {.patience = 300ms});
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:1"));
  }
}

TEST(Grpc, AGradientThatIsNotFiniteIsDroppedAndTheWorkerGoesOn) {
  Fleet fleet({}, 1);
  const auto client = connect(fleet.addresses, layout());
  const auto before = pulled(*client);
  auto bad = gradient_of(0, 0);
  bad[1234] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(client->push(bad.data(), {.rate = kRate}).fate, Admission::Fate::dropped);
  EXPECT_EQ(fleet.concurrents[0]->with([](Server& server) { return server.refused(); }), 1);
  EXPECT_EQ(pulled(*client), before);
  auto good = gradient_of(0, 0);
  EXPECT_EQ(client->push(good.data(), {.rate = kRate}).fate, Admission::Fate::applied);
}

// It is not finite in the second server's range alone, and the first one must not use it either.
TEST(Grpc, AGradientThatIsNotFiniteSomewhereIsUsedNowhere) {
  for (const std::string compression : {"", "fp16", "int8"}) {
    Fleet fleet({}, 2, {.compression = {.name = compression}});
    const auto client = connect(fleet.addresses, layout(), {.compression = {.name = compression}});
    const auto before = pulled(*client);
    auto bad = gradient_of(0, 0);
    bad[kLength - 60] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(client->push(bad.data(), {.rate = kRate}).fate, Admission::Fate::dropped);
    EXPECT_EQ(pulled(*client), before);
    for (const auto& concurrent : fleet.concurrents)
      EXPECT_EQ(concurrent->with([](Server& server) { return server.refused(); }), 1) << compression;
  }
  // What only overflows on its way is refused likewise.
  Fleet fleet({}, 2, {.compression = {.name = "fp16"}});
  const auto client = connect(fleet.addresses, layout(), {.compression = {.name = "fp16"}});
  const auto before = pulled(*client);
  auto large = gradient_of(0, 0);
  large[kLength - 60] = 1e6f;
  EXPECT_EQ(client->push(large.data(), {.rate = kRate}).fate, Admission::Fate::dropped);
  EXPECT_EQ(pulled(*client), before);
}

// ---- compressed pushes

class GrpcCompressed : public testing::TestWithParam<std::string> {};

/// The server must get what encoding and decoding, as compress/ does them, make of the gradients; the second push carries the residual.
TEST_P(GrpcCompressed, DecodesToWhatTheCodeSays) {
  PushCompression compression{.name = GetParam(), .seed = 3};
  compression.settings.density = 0.05;
  Fleet fleet({}, 2, {.compression = compression});
  const auto oracle = make_concurrent({});
  const auto remote = connect(fleet.addresses, layout(), {.compression = compression});
  const auto local = make_in_process_client({oracle}, {0, kLength}, 0);
  const auto& compressor = find(compress::compressors(), "compressor", GetParam()).make;
  std::vector<float> residual(kLength);
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(pulled(*remote), pulled(*local)) << "step " << step;
    auto gradient = gradient_of(0, step);
    std::vector<float> expected(kLength);
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += gradient[i];
    for (std::size_t r = 0; r < 2; ++r) {
      const std::int64_t begin = fleet.cuts[r], end = fleet.cuts[r + 1];
      const auto range = parts_of(layout()).slice(begin, end);
      if (compressor.coder) {
        const auto coder = compressor.coder(compression.settings);
        std::vector<std::byte> code(static_cast<std::size_t>(coder->bound(range)));
        const compress::CodingContext context{.seed = 3, .rank = 0, .step = step, .place = static_cast<std::uint64_t>(begin)};
        code.resize(static_cast<std::size_t>(coder->encode(range, residual.data() + begin, context, code.data())));
        coder->decode_add(range, code, 1, expected.data() + begin);
      } else {
        const auto linear = compressor.linear(compression.settings, range, 3);
        linear->round(0, residual.data() + begin);
        linear->finish(residual.data() + begin, expected.data() + begin);
      }
    }
    remote->push(gradient.data(), {.rate = kRate});
    local->push(expected.data(), {.rate = kRate});
  }
  EXPECT_EQ(pulled(*remote), pulled(*local));
}

INSTANTIATE_TEST_SUITE_P(Compressors, GrpcCompressed, testing::Values("fp16", "bf16", "topk", "int8", "onebit"),
                         [](const auto& instance) { return instance.param; });

TEST(Grpc, ASpoiltGradientDoesNotSpoilTheResidual) {
  for (const std::string name : {"fp16", "int8", "topk", "dgc"}) {
    const PushCompression compression{.name = name, .momentum = 0.9};
    Fleet fleet({}, 1, {.compression = compression});
    const auto client = connect(fleet.addresses, layout(), {.compression = compression});
    pulled(*client);
    auto bad = gradient_of(0, 0);
    bad[17] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(client->push(bad.data(), {.rate = kRate}).fate, Admission::Fate::dropped) << name;
    pulled(*client);
    auto good = gradient_of(0, 1);
    EXPECT_EQ(client->push(good.data(), {.rate = kRate}).fate, Admission::Fate::applied) << name;
  }
}

TEST(Grpc, CompressorsThatNeedAllWorkersAreRefused) {
  const PushCompression compression{.name = "powersgd"};
  try {
    GrpcServer(make_concurrent({}), layout(), keyed({.compression = compression}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("powersgd"), HasSubstr("fp16"), HasSubstr("topk")));
  }
}

TEST(Grpc, BothSidesMustCompressAlike) {
  Fleet fleet({}, 1, {.compression = {.name = "topk"}});
  EXPECT_THROW(connect(fleet.addresses, layout()), ConfigError);
  PushCompression denser{.name = "topk"};
  denser.settings.density = 0.5;
  EXPECT_THROW(connect(fleet.addresses, layout(), {.compression = denser}), ConfigError);
}

#else

TEST(Grpc, SaysHowToGetIt) {
  try {
    connect_grpc({"127.0.0.1:1"}, {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libgrpc++-dev"));
  }
}

#endif

}  // namespace
}  // namespace paceline::ps

// DataParallel in a plain LibTorch loop: gradients are the mean over the workers, whatever a pass uses and however it accumulates.
#include "paceline/data_parallel/data_parallel.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/buckets.h"
#include "paceline/graph/builder.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/updater.h"

namespace paceline {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear in{nullptr}, out{nullptr}, spare{nullptr};
  Net() {
    in = register_module("in", torch::nn::Linear(6, 9));
    out = register_module("out", torch::nn::Linear(9, 3));
    spare = register_module("spare", torch::nn::Linear(2, 2));  // never used
  }
  torch::Tensor loss(int worker) {
    const torch::Tensor x = (torch::arange(24, torch::kFloat) * 0.37 + worker).sin().reshape({4, 6});
    return out(torch::relu(in(x))).square().mean();
  }
};

/// The same parameters each time, but for `shift`.
void fill(Net& net, float shift = 0) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net.parameters())
    parameter.copy_((torch::arange(parameter.numel(), torch::kFloat) * 0.11).cos().reshape(parameter.sizes()) + shift);
}

/// What fill() gives, in new memory, as torch::load() brings it.
void load_into(Net& net) {
  Net other;
  fill(other);
  const auto loaded = other.parameters();
  for (std::size_t i = 0; i < loaded.size(); ++i) net.parameters()[i].set_data(loaded[i].detach());
}

/// Every worker's gradient of in.weight after `passes` backward passes, all but the last held back. `drop`: as LibTorch 2 zeroes.
/// `load`: other parameters are loaded once the module is wrapped.
std::vector<torch::Tensor> gradients_of(int workers, int passes, bool overlap, bool drop = false, bool load = false) {
  auto group = comm::local_group(workers);
  std::vector<torch::Tensor> result(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      Net net;
      fill(net, static_cast<float>(load ? rank + 1 : rank));  // worker 0's values count
      DataParallel parallel(net, *group[static_cast<std::size_t>(rank)], {.bucket_mb = 0.0001, .overlap = overlap});
      for (int step = 0; step < 2; ++step) {  // twice: the order is learned in the first
        if (load) load_into(net);
        net.zero_grad(drop);
        for (int pass = 1; pass < passes; ++pass) {
          const DataParallel::Accumulate held(parallel);
          net.loss(rank).backward();
        }
        net.loss(rank).backward();
      }
      result[static_cast<std::size_t>(rank)] = net.in->weight.grad().clone();
      EXPECT_EQ(net.spare->weight.grad().abs().sum().item<float>(), 0);
    });
  for (std::thread& thread : threads) thread.join();
  return result;
}

torch::Tensor mean_by_hand(int workers) {
  torch::Tensor sum = torch::zeros({9, 6});
  for (int rank = 0; rank < workers; ++rank) {
    Net net;
    fill(net);
    net.loss(rank).backward();
    sum += net.in->weight.grad();
  }
  return sum / workers;
}

TEST(DataParallel, LeavesTheMeanOfAllWorkersGradients) {
  for (const bool overlap : {false, true})
    for (const torch::Tensor& gradient : gradients_of(3, 1, overlap))
      EXPECT_TRUE(torch::allclose(gradient, mean_by_hand(3), 1e-5, 1e-6)) << "overlap " << overlap;
}

/// Mean loss over samples [begin, end) of eight.
torch::Tensor loss_of(Net& net, std::int64_t begin, std::int64_t end) {
  const torch::Tensor x = (torch::arange(48, torch::kFloat) * 0.37).sin().reshape({8, 6});
  return net.out(torch::relu(net.in(x.slice(0, begin, end)))).square().mean();
}

TEST(DataParallel, WeighsUnevenSharesByTheirSamples) {
  Net whole;
  fill(whole);
  loss_of(whole, 0, 8).backward();
  const std::vector<std::int64_t> cuts = {0, 5, 8, 8};  // the third worker has no sample left
  for (const bool by_itself : {false, true}) {
    auto group = comm::local_group(3);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        Net net;
        fill(net);
        DataParallel parallel(net, *group[rank]);
        const std::int64_t samples = cuts[rank + 1] - cuts[rank];
        const torch::Tensor loss = samples > 0 ? loss_of(net, cuts[rank], cuts[rank + 1]) : torch::Tensor();
        if (by_itself) {
          const double weight = parallel.weight(samples);
          parallel.backward(loss.defined() ? loss * weight : loss);
        } else {
          parallel.backward(loss, samples);
        }
        EXPECT_TRUE(torch::allclose(net.in->weight.grad(), whole.in->weight.grad(), 1e-5, 1e-6)) << rank;
        EXPECT_THROW(parallel.weight(-1), ConfigError);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(DataParallel, SendsTheSumOfAccumulatedPasses) {
  for (const torch::Tensor& gradient : gradients_of(2, 3, true)) EXPECT_TRUE(torch::allclose(gradient, mean_by_hand(2) * 3, 1e-5, 1e-6));
}

TEST(DataParallel, ZeroGradMayDropTheGradients) {
  for (const int passes : {1, 3})
    for (const torch::Tensor& gradient : gradients_of(2, passes, true, /*drop=*/true))
      EXPECT_TRUE(torch::allclose(gradient, mean_by_hand(2) * passes, 1e-5, 1e-6)) << passes;
}

TEST(DataParallel, AveragesTheGradientsOfWhatWasLoaded) {
  for (const torch::Tensor& gradient : gradients_of(2, 1, true, /*drop=*/false, /*load=*/true))
    EXPECT_TRUE(torch::allclose(gradient, mean_by_hand(2), 1e-5, 1e-6));
}

/// What each of two workers throws.
std::vector<std::string> refusals_of(const std::function<void(int rank, comm::Communicator& comm)>& body) {
  auto group = comm::local_group(2);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, *group[static_cast<std::size_t>(rank)]);
      } catch (const ConfigError& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST(DataParallel, RefusesModulesThatDiffer) {
  for (const std::string& message : refusals_of([](int rank, comm::Communicator&comm) {
         torch::nn::Linear module(4, 6 + 2 * rank);  // as long in the arena
         const DataParallel parallel(*module, comm);
       }))
    EXPECT_NE(message.find("worker 1's module"), std::string::npos) << message;
}

TEST(DataParallel, RefusesAModuleThatWasMovedSinceItWasWrapped) {
  for (const std::string& message : refusals_of([](int, comm::Communicator& comm) {
         Net net;
         const DataParallel parallel(net, comm);
         net.to(torch::kDouble);
         net.in(torch::ones({1, 6}, torch::kDouble)).sum().backward();
       }))
    EXPECT_NE(message.find("Double"), std::string::npos) << message;
}

TEST(DataParallel, AnUpdaterOnItsArenaTrainsAllWorkersAlike) {
  std::vector<torch::Tensor> trained(2);
  refusals_of([&](int rank, comm::Communicator& comm) {
    Net net;
    fill(net);
    DataParallel parallel(net, comm);
    step::Updater updater(parallel.arena(), {.name = "sgd", .rate = 0.1, .momentum = 0});
    net.loss(rank).backward();
    updater.begin_step({.rate = 0.1f, .step = 1});
    updater.update_all();
    trained[static_cast<std::size_t>(rank)] = net.in->weight.detach().clone();
  });
  Net plain;
  fill(plain);
  const torch::Tensor expected = plain.in->weight.detach() - 0.1 * mean_by_hand(2);
  for (const torch::Tensor& weight : trained) EXPECT_TRUE(torch::allclose(weight, expected, 1e-5, 1e-6));
}

TEST(DataParallel, AWorkerThatReachesNoParameterJoinsWithZeros) {
  constexpr int kWorkers = 3;
  auto group = comm::local_group(kWorkers);
  std::vector<torch::Tensor> gradients(kWorkers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank)
    threads.emplace_back([&, rank] {
      Net net;
      fill(net);
      DataParallel parallel(net, *group[static_cast<std::size_t>(rank)], {.bucket_mb = 0.0001, .overlap = true});
      for (int step = 0; step < 4; ++step) {  // worker 0 has nothing to say in the first, where the order is learned
        net.zero_grad();
        const torch::Tensor elsewhere = torch::ones({2}, torch::requires_grad());
        if (rank == step) parallel.backward(elsewhere.sum());  // a loss without a parameter of the module in it
        else if (rank + 1 == step) parallel.backward();        // no loss at all; worker 2 in the last step
        else parallel.backward(net.loss(rank));
      }
      gradients[static_cast<std::size_t>(rank)] = net.in->weight.grad().clone();
    });
  for (std::thread& thread : threads) thread.join();
  Net net;
  fill(net);
  (net.loss(0) + net.loss(1)).backward();
  for (const torch::Tensor& gradient : gradients) EXPECT_TRUE(torch::allclose(gradient, net.in->weight.grad() / kWorkers, 1e-5, 1e-6));
}

/// Calls body(rank, comm) in a thread for each of `workers` workers.
void with_ranks(int workers, const std::function<void(int, comm::Communicator&)>& body) {
  auto group = comm::local_group(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back([&, rank] { body(rank, *group[static_cast<std::size_t>(rank)]); });
  for (std::thread& thread : threads) thread.join();
}

TEST(DataParallel, TwoModulesOnOneCommunicatorKeepTheirGradientsApart) {
  with_ranks(2, [](int rank, comm::Communicator& comm) {
    torch::nn::Linear generator(16, 16), critic(16, 16);
    DataParallel first(*generator, comm), second(*critic, comm);
    int wrong = 0;
    for (int step = 0; step < 200; ++step) {
      generator->zero_grad(), critic->zero_grad();
      (generator->weight.sum() + generator->bias.sum() + 100 * (critic->weight.sum() + critic->bias.sum())).backward();
      wrong += !generator->weight.grad().eq(1).all().item<bool>() || !critic->weight.grad().eq(100).all().item<bool>();
    }
    EXPECT_EQ(wrong, 0) << "steps of worker " << rank;
  });
}

// Autograd tells nobody that a pass has failed; the next one must not send what is left of it.
TEST(DataParallel, RefusesToGoOnAfterAPassThatThrew) {
  for (const bool overlap : {false, true})
    with_ranks(2, [&](int rank, comm::Communicator& comm) {
      Net net;
      DataParallel parallel(net, comm, {.bucket_mb = 0.0001, .overlap = overlap});
      net.loss(rank).backward();
      const torch::Tensor hidden = net.in(torch::ones({4, 6}));
      hidden.register_hook([](const torch::Tensor&) { throw std::domain_error("mid-pass"); });
      EXPECT_THROW(net.out(hidden).sum().backward(), std::domain_error);
      for (const auto& next : {std::function([&] { net.loss(rank).backward(); }), std::function([&] { parallel.backward(); }),
                               std::function([&] { parallel.sum(1); })}) {
        try {
          next();
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("backward pass"), std::string::npos) << error.what();
        }
      }
    });
}

TEST(DataParallel, BuffersOfEveryTypeTakeWorker0sValues) {
  for (const auto type : {torch::kBool, torch::kByte, torch::kShort, torch::kInt, torch::kLong, torch::kHalf, torch::kDouble})
    with_ranks(2, [type](int rank, comm::Communicator& comm) {
      Net net;
      const auto values_of = [type](int worker) { return (torch::arange(6, torch::kInt).add(worker).remainder(2)).to(type); };
      net.register_buffer("flat", values_of(rank));
      net.register_buffer("transposed", values_of(rank).reshape({2, 3}).t());
      net.register_buffer("empty", torch::empty({0}, type));
      net.register_buffer("absent", torch::Tensor());
      DataParallel parallel(net, comm);
      EXPECT_TRUE(torch::equal(net.named_buffers()["flat"], values_of(0))) << type;
      EXPECT_TRUE(torch::equal(net.named_buffers()["transposed"], values_of(0).reshape({2, 3}).t())) << type;
      net.named_buffers()["flat"].copy_(values_of(rank + 1));
      parallel.synchronise_buffers();
      EXPECT_TRUE(torch::equal(net.named_buffers()["flat"], values_of(1))) << type;
    });
}

TEST(DataParallel, FrozenParametersTakeWorker0sValuesToo) {
  with_ranks(2, [](int rank, comm::Communicator& comm) {
    Net net;
    fill(net, static_cast<float>(rank));
    net.out->weight.set_requires_grad(false);
    net.spare->to(torch::kDouble);  // of another type than what is trained
    for (torch::Tensor& parameter : net.spare->parameters()) parameter.set_requires_grad(false);
    const DataParallel parallel(net, comm);
    Net expected;
    fill(expected);
    EXPECT_TRUE(torch::equal(net.out->weight, expected.out->weight)) << "worker " << rank;
    EXPECT_TRUE(torch::equal(net.spare->weight, expected.spare->weight.to(torch::kDouble))) << "worker " << rank;
    EXPECT_FALSE(net.out->weight.requires_grad());
  });
}

TEST(DataParallel, RefusesAModuleThatComputesInAnArenaOfItsOwn) {
  const auto group = comm::local_group(1);
  const auto graph = std::make_shared<nn::GraphModule>(graph::Builder("tiny", {4}, 2).fc("fc", 2).finish(), nn::GraphModule::Options());
  struct Wrapper : torch::nn::Module {
  } wrapper;
  wrapper.register_module("graph", graph);
  for (torch::nn::Module* module : {static_cast<torch::nn::Module*>(graph.get()), static_cast<torch::nn::Module*>(&wrapper)})
    EXPECT_THROW(DataParallel(*module, *group[0]), ConfigError);
}

TEST(BucketLane, CountsAnUpdateNeitherAsCommunicationNorAsExposed) {
  constexpr std::chrono::milliseconds kExchange(3), kUpdate(5);
  for (const bool overlap : {false, true}) {
    Net net;
    const auto alone = std::move(comm::local_group(1).front());
    const tensor::Arena arena = tensor::adopt(net);
    VirtualClock clock;
    data_parallel::BucketLane lane(arena, *alone, clock, [&](const data_parallel::Bucket&) {
      clock.advance(kExchange + kUpdate);
      return kUpdate;
    });
    lane.configure(/*bytes=*/1, overlap);
    lane.finish();
    const double expected = seconds(kExchange) * static_cast<double>(lane.buckets().size());
    EXPECT_GT(lane.buckets().size(), 1u);
    EXPECT_DOUBLE_EQ(lane.exposed_s(), expected) << "overlap " << overlap;
    EXPECT_DOUBLE_EQ(lane.busy_s(), expected) << "overlap " << overlap;
  }
}

}  // namespace
}  // namespace paceline

// DataParallel with synchronised norms: uneven shares train what one worker trains with the whole batch, in double precision.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/alike.h"
#include "paceline/data_parallel/data_parallel.h"

namespace paceline::norms {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d member{nullptr};
  torch::nn::Sequential head{nullptr};

  Net() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 2).bias(false)));
    member = register_module("member", torch::nn::BatchNorm2d(3));
    head = register_module(
        "head", torch::nn::Sequential(torch::nn::Linear(12, 5), torch::nn::BatchNorm1d(5), torch::nn::ReLU(), torch::nn::Linear(5, 1)));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int place = 0;
    for (const torch::Tensor& parameter : parameters())
      parameter.copy_((torch::arange(parameter.numel(), torch::kDouble) * 0.9 + ++place).sin().reshape(parameter.sizes()));
  }
  torch::Tensor loss(const torch::Tensor& x) {
    return (head->forward(torch::relu(member(conv(x))).flatten(1)) - x.sum({1, 2, 3}).view({-1, 1})).square().mean();
  }
};

torch::Tensor samples(int step) { return ((torch::arange(11 * 9, torch::kDouble) + 13 * step) * 0.37).sin().reshape({11, 1, 3, 3}); }

struct Trained {
  std::vector<torch::Tensor> parameters, buffers;
};

/// Four steps; worker i has the samples [cuts[i], cuts[i + 1]) of every batch. Worker `shown`'s module.
Trained train(const std::vector<std::int64_t>& cuts, const DataParallel::Options& options, std::size_t shown = 0) {
  const std::size_t workers = cuts.size() - 1;
  auto group = comm::local_group(static_cast<int>(workers));
  Trained trained;
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      Net net;
      DataParallel parallel(net, *group[rank], options);
      torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        const torch::Tensor share = samples(step).slice(0, cuts[rank], cuts[rank + 1]);
        parallel.backward(net.loss(share), share.size(0));
        optimizer.step();
      }
      if (rank == shown) trained = {net.parameters(), net.buffers()};
    });
  for (std::thread& thread : threads) thread.join();
  return trained;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::allclose(a[i], b[i], 1e-8, 1e-10)) return false;
  return a.size() == b.size();
}

TEST(DataParallelNorms, TrainWhatOneWorkerTrainsWithTheWholeBatch) {
  const Trained alone = train({0, 11}, {});
  for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 7, 11}, {0, 2, 8, 8, 11}})  // one has no sample
    for (const bool overlap : {false, true})
      for (std::size_t shown = 0; shown + 1 < cuts.size(); ++shown) {
        const Trained together = train(cuts, {.bucket_mb = 0.0001, .overlap = overlap, .synchronise_norms = true}, shown);
        EXPECT_TRUE(equal(together.parameters, alone.parameters)) << cuts.size() - 1 << " workers, worker " << shown;
        EXPECT_TRUE(equal(together.buffers, alone.buffers)) << cuts.size() - 1 << " workers, worker " << shown;
      }
  EXPECT_FALSE(equal(train({0, 7, 11}, {}).parameters, alone.parameters)) << "local norms see other samples";
}

TEST(DataParallelNorms, AWorkerWithoutSamplesOrLossIsTold) {
  auto group = comm::local_group(2);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Net net;
      DataParallel parallel(net, *group[rank], {.synchronise_norms = true});
      try {
        parallel.backward();
      } catch (const ConfigError& error) {
        messages[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages) EXPECT_NE(message.find("empty batch"), std::string::npos) << message;
}

TEST(DataParallelNorms, ThreadsKnowThatTheyShareAProcess) {
  auto group = comm::local_group(2);
  std::vector<int> shared(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] { shared[rank] = data_parallel::share_process(*group[rank]) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared, (std::vector<int>{1, 1}));
  EXPECT_FALSE(data_parallel::share_process(*comm::local_group(1).front()));
}

}  // namespace
}  // namespace paceline::norms

// DataParallel with a compressor: the same exchange as the allreduce strategy's, to the bit, and training that follows one worker's.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/data_parallel.h"
#include "paceline/data_parallel/exchange.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"

namespace paceline::compression {
namespace {

constexpr int kWorkers = 3;
constexpr double kBucketMb = 0.0003;
constexpr std::uint64_t kSeed = 7;

compress::CompressConfig settings() {
  compress::CompressConfig compress;
  compress.density = 0.1;
  return compress;
}

void with_compressing_ranks(int workers, const std::function<void(int, comm::Communicator&)>& body) {
  auto group = comm::local_group(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back([&, rank] { body(rank, *group[static_cast<std::size_t>(rank)]); });
  for (std::thread& thread : threads) thread.join();
}

/// A gradient that only this place of this worker's arena has in this step.
torch::Tensor gradient_of(int rank, int step, std::int64_t offset, torch::IntArrayRef shape) {
  const std::int64_t count = torch::empty(shape).numel();
  return ((torch::arange(count, torch::kDouble) + static_cast<double>(offset + 977 * (3 * step + rank))) * 0.731)
      .sin()
      .to(torch::kFloat)
      .reshape(shape);
}

double epoch_of(int step) { return 0.5 * step; }

/// What the strategy's exchange makes of those gradients, by step; worker 0's arena.
std::vector<torch::Tensor> exchanged(const std::string& compression, int steps, double momentum) {
  std::vector<torch::Tensor> result;
  graph::ModelConfig model;
  model.network = "mlp", model.input = {1, 5, 5}, model.hidden = {19}, model.classes = 4;
  with_compressing_ranks(kWorkers, [&](int rank, comm::Communicator& comm) {
    nn::GraphModule module(graph::make_graph(model), {});
    const tensor::Arena& arena = module.arena();
    const optim::OptimConfig optim{.momentum = momentum};
    const compress::CompressConfig compress = settings();
    observe::Bus bus;
    const SteadyClock clock;
    const comm::Mesh mesh(comm);
    const auto exchange = data_parallel::make_exchange(step::Context{.model = module,
                                                                     .optim = optim,
                                                                     .mesh = mesh,
                                                                     .bus = bus,
                                                                     .clock = clock,
                                                                     .compress = compress,
                                                                     .compression = compression,
                                                                     .seed = kSeed});
    const auto buckets = data_parallel::cut_buckets(arena, static_cast<std::int64_t>(kBucketMb * (1 << 20)));
    ASSERT_GT(buckets.size(), 1U);
    exchange->prepare(buckets);
    for (int step = 1; step <= steps; ++step) {
      for (std::size_t i = 0; i < arena.entries().size(); ++i)
        arena.gradient(i).copy_(gradient_of(rank, step, arena.entries()[i].offset, arena.entries()[i].shape));
      exchange->begin_step({.step = step, .epoch = epoch_of(step)});
      for (const data_parallel::Bucket& bucket : buckets) exchange->average(bucket);
      if (rank == 0) result.push_back(arena.gradients().clone());
    }
  });
  return result;
}

class DataParallelCompression : public testing::TestWithParam<std::string> {};

TEST_P(DataParallelCompression, SendsWhatTheAllreduceStrategySends) {
  constexpr int kSteps = 3;  // the later ones have residuals
  const double momentum = GetParam() == "dgc" ? 0.9 : 0;
  const std::vector<torch::Tensor> expected = exchanged(GetParam(), kSteps, momentum);
  with_compressing_ranks(kWorkers, [&](int rank, comm::Communicator& comm) {
    torch::nn::Sequential net(torch::nn::Linear(25, 19), torch::nn::Linear(19, 4));
    DataParallel::Options options{.bucket_mb = kBucketMb, .compression = GetParam(), .compress = settings(), .momentum = momentum};
    options.seed = kSeed;
    DataParallel parallel(*net, comm, options);
    for (int step = 1; step <= kSteps; ++step) {
      net->zero_grad();
      parallel.set_epoch(epoch_of(step));
      torch::Tensor loss = torch::zeros({});
      const auto parameters = net->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i)  // its gradient is the one above, without a rounding
        loss = loss + (parameters[i] * gradient_of(rank, step, parallel.arena().entries()[i].offset, parameters[i].sizes())).sum();
      loss.backward();
      EXPECT_TRUE(torch::equal(parallel.arena().gradients(), expected[static_cast<std::size_t>(step - 1)]))
          << "worker " << rank << ", step " << step;
    }
    EXPECT_GT(parallel.bytes_sent(), 0);
  });
}

std::vector<std::string> all_compressors() {
  std::vector<std::string> keys = {"none"};
  for (const auto& row : compress::compressors()) keys.emplace_back(row.key);
  return keys;
}
INSTANTIATE_TEST_SUITE_P(Every, DataParallelCompression, testing::ValuesIn(all_compressors()), [](const auto& one) { return one.param; });

/// The loss of a regression after some steps with torch's own optimizer.
double trained_loss(int workers, const DataParallel::Options& options, double momentum, int steps = 120) {
  double result = 0;
  with_compressing_ranks(workers, [&](int rank, comm::Communicator& comm) {
    torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Linear(16, 2));
    {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& parameter : net->parameters())
        parameter.copy_((torch::arange(parameter.numel(), torch::kFloat) * 0.7).sin().reshape(parameter.sizes()) * 0.3);
    }
    DataParallel parallel(*net, comm, options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(momentum));
    const torch::Tensor x = (torch::arange(72, torch::kFloat) * 0.37).sin().reshape({12, 6}), y = x.narrow(1, 0, 2) * 2;
    const std::int64_t share = 12 / workers;
    const auto loss_of = [&](const torch::Tensor& in, const torch::Tensor& out) { return (net->forward(in) - out).square().mean(); };
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      loss_of(x.narrow(0, rank * share, share), y.narrow(0, rank * share, share)).backward();
      optimizer.step();
    }
    if (rank == 0) result = loss_of(x, y).item<double>();
  });
  return result;
}

TEST(DataParallelTraining, CompressedWorkersLearnWhatOneDoes) {
  const double alone = trained_loss(1, {}, 0);
  ASSERT_LT(alone, 0.05);
  for (const char* compression : {"fp16", "int8", "topk", "powersgd"}) {
    DataParallel::Options options{.compression = compression};
    options.compress.density = 0.25;
    EXPECT_LT(trained_loss(3, options, 0), 0.1) << compression;
  }
}

TEST(DataParallelTraining, DgcCarriesTheMomentumOnAnyNumberOfWorkers) {
  DataParallel::Options options{.compression = "dgc", .momentum = 0.8};
  options.compress.density = 1, options.compress.warmup_epochs = 0;
  constexpr int kSteps = 12;
  const double with_momentum = trained_loss(1, {}, 0.8, kSteps);
  EXPECT_NEAR(trained_loss(1, options, 0, kSteps), with_momentum, 1e-6);
  EXPECT_GT(std::abs(trained_loss(1, {}, 0, kSteps) - with_momentum), 1e-3) << "without momentum it is another";
}

TEST(DataParallelCompressionOptions, AreCheckedAsThoseOfARecipe) {
  const auto refusal = [](DataParallel::Options options, torch::ScalarType type = torch::kFloat) -> std::string {
    std::vector<std::string> messages(2);
    with_compressing_ranks(2, [&](int rank, comm::Communicator& comm) {
      torch::nn::Linear net(3, 2);
      net->to(type);
      try {
        const DataParallel parallel(*net, comm, options);
      } catch (const ConfigError& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
    return messages[0];
  };
  const auto says = [](const std::string& message, const char* fact) { return message.find(fact) != std::string::npos; };
  EXPECT_TRUE(says(refusal({.compression = "topkk"}), "topk"));
  DataParallel::Options dense{.compression = "topk"};
  dense.compress.density = 3;
  EXPECT_TRUE(says(refusal(dense), "density"));
  EXPECT_TRUE(says(refusal({.compression = "topk", .momentum = 0.9}), "0.9"));
  EXPECT_TRUE(says(refusal({.compression = "topk"}, torch::kDouble), "Double"));
  DataParallel::Options algorithm;
  algorithm.algorithm = "rong";
  EXPECT_TRUE(says(refusal(algorithm), "ring"));
}

}  // namespace
}  // namespace paceline::compression

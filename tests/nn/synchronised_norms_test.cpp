// Batch norms of a user's module among workers with uneven shares, against one worker with all samples, in double precision.
#include "paceline/nn/synchronised_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <barrier>
#include <mutex>
#include <sstream>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/nn/module_model.h"

namespace paceline::nn::synchronised {
namespace {

using testing::HasSubstr;

/// Adds up tensors of threads.
class Together {
 public:
  explicit Together(std::ptrdiff_t workers) : barrier_(workers) {}

  void sum(at::Tensor& tensor) {
    {
      const std::lock_guard lock(mutex_);
      total_ = total_.defined() ? total_ + tensor : tensor.clone();
    }
    barrier_.arrive_and_wait();
    const at::Tensor all = total_;
    barrier_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      total_.reset();
    }
    barrier_.arrive_and_wait();
    tensor.copy_(all);
  }

 private:
  std::mutex mutex_;
  std::barrier<> barrier_;
  at::Tensor total_;
};

/// Norms as members, in a Sequential, of one and two dimensions, with and without weights, with a cumulative mean.
struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d member{nullptr};
  torch::nn::Sequential sequence{nullptr};
  torch::nn::BatchNorm1d cumulative{nullptr};

  Net() {
    conv = register_module("conv", torch::nn::Conv2d(2, 3, 2));
    member = register_module("member", torch::nn::BatchNorm2d(3));
    sequence = register_module("sequence", torch::nn::Sequential(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(3).affine(false)),
                                                                 torch::nn::ReLU(), torch::nn::Conv2d(3, 4, 2), torch::nn::BatchNorm2d(4)));
    cumulative = register_module("cumulative", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(4).momentum(c10::nullopt)));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int place = 0;
    for (const torch::Tensor& parameter : parameters())
      parameter.copy_((torch::arange(parameter.numel(), torch::kDouble) * 0.7 + ++place).sin().reshape(parameter.sizes()));
  }
  torch::Tensor forward(const torch::Tensor& x) { return cumulative(sequence->forward(member(conv(x))).flatten(1)); }
};

torch::Tensor images(std::int64_t count) {
  return ((torch::arange(count * 18, torch::kDouble) * 0.37).sin() * 2 + 1).reshape({count, 2, 3, 3});
}
torch::Tensor loss_of(const torch::Tensor& out, const torch::Tensor& x) { return (out.pow(3) * x.mean({1, 2, 3}).view({-1, 1})).sum(); }

struct Outcome {
  torch::Tensor input_gradient;
  std::vector<torch::Tensor> gradients, buffers;
};

/// Two steps' passes of one worker over its share; the gradients are added.
Outcome passes(Net& net, const torch::Tensor& share) {
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    torch::Tensor x = share.clone().requires_grad_();
    loss_of(net.forward(x), share).backward();
    outcome.input_gradient = x.grad();
  }
  for (const torch::Tensor& parameter : net.parameters()) outcome.gradients.push_back(parameter.grad());
  outcome.buffers = net.buffers();
  return outcome;
}

bool close(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-9, 1e-10); }

TEST(SynchronisedNorms, EqualOneWorkerWithTheWholeBatchWhateverTheShares) {
  const torch::Tensor all = images(9);
  Net whole;
  const Outcome expected = passes(whole, all);
  const std::vector<std::int64_t> cuts = {0, 5, 5, 9};  // the second worker has no sample
  std::vector<Outcome> outcomes(3);
  Together together(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      Net net;
      const SynchronisedNorms norms(net, [&](at::Tensor& tensor) { together.sum(tensor); });
      EXPECT_EQ(norms.count(), 4U);
      outcomes[i] = passes(net, all.slice(0, cuts[i], cuts[i + 1]));
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(close(outcomes[i].input_gradient, expected.input_gradient.slice(0, cuts[i], cuts[i + 1]))) << i;
    for (std::size_t k = 0; k < expected.buffers.size(); ++k) EXPECT_TRUE(close(outcomes[i].buffers[k], expected.buffers[k])) << i << k;
  }
  for (std::size_t k = 0; k < expected.gradients.size(); ++k)
    EXPECT_TRUE(close(outcomes[0].gradients[k] + outcomes[1].gradients[k] + outcomes[2].gradients[k], expected.gradients[k])) << k;
}

/// How often a norm of the module meets the others in `body`.
template <class Body>
int meetings(torch::nn::Module& module, const Body& body) {
  int meetings = 0;
  const SynchronisedNorms norms(module, [&](at::Tensor&) { ++meetings; });
  body();
  return meetings;
}

TEST(SynchronisedNorms, LeaveOtherNormsAndEvaluationsAlone) {
  Net net, other;
  torch::nn::InstanceNorm2d instance(torch::nn::InstanceNorm2dOptions(2).affine(true).track_running_stats(true));
  instance->to(torch::kDouble);
  EXPECT_EQ(meetings(net, [&] { other.forward(images(4)); }), 0);
  EXPECT_EQ(meetings(*instance, [&] { instance->forward(images(4)); }), 0);
  EXPECT_EQ(meetings(net,
                     [&] {
                       net.eval();
                       net.forward(images(4));
                     }),
            0);
  net.train();
  EXPECT_EQ(meetings(net, [&] { net.forward(images(4)); }), 8) << "two sums for each of four norms";
  Net plain;
  plain.forward(images(4));
  EXPECT_TRUE(close(net.member->running_mean, plain.member->running_mean)) << "alone they are LibTorch's";
  const int before = meetings(net, [] {});
  net.forward(images(4));
  EXPECT_EQ(before, 0) << "and after it, local again";
}

TEST(SynchronisedNorms, StayMarkedWhenStatisticsAreLoaded) {
  auto net = std::make_shared<Net>();
  std::stringstream file;
  torch::save(net, file);
  EXPECT_EQ(meetings(*net,
                     [&] {
                       torch::load(net, file);
                       net->forward(images(4));
                     }),
            8);
}

TEST(SynchronisedNorms, TheLaterOfTwoCounts) {
  Net net;
  int first = 0, second = 0;
  const SynchronisedNorms earlier(net, [&](at::Tensor&) { ++first; });
  {
    const SynchronisedNorms later(net, [&](at::Tensor&) { ++second; });
    net.forward(images(4));
  }
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 8);
}

template <class Body>
std::string refusal_of(const Body& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(SynchronisedNorms, RefuseWhatTheyCannotDo) {
  torch::nn::Sequential untracked(torch::nn::Linear(2, 3),
                                  torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(3).track_running_stats(false)));
  EXPECT_THAT(refusal_of([&] { const SynchronisedNorms norms(*untracked, [](at::Tensor&) {}); }),
              testing::AllOf(HasSubstr("'1'"), HasSubstr("track_running_stats(true)")));
  Net net;
  const SynchronisedNorms norms(net, [](at::Tensor&) {});
  torch::Tensor x = images(3).requires_grad_();
  const torch::Tensor loss = net.forward(x).pow(2).sum();
  EXPECT_THAT(refusal_of([&] { torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true); }),
              testing::AllOf(HasSubstr("'cumulative'"), HasSubstr("create_graph")));
}

TEST(SynchronisedNorms, AModuleModelHasThemWhilePassesSumOverWorkers) {
  auto net = std::make_shared<Net>();
  const auto model = model_of(net);
  int sums = 0;
  Pass together, alone;
  together.sum_over_workers = [&](at::Tensor&) { ++sums; };
  Trace trace;
  const at::Tensor out = model->run(images(4), together, &trace);
  model->back(at::ones_like(out), together, trace);
  EXPECT_EQ(sums, 12) << "two sums forward and one back, for each of four norms";
  model->run(images(4), alone, nullptr);
  EXPECT_EQ(sums, 12);
}

}  // namespace
}  // namespace paceline::nn::synchronised

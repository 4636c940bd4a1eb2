// Experts that workers share, against one worker that has them all: outputs, gradients, shares of any size, and the balance loss. The layer
// itself is held against loops in cases.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kPositions = 6, kFeatures = 4, kExperts = 4, kAll = 6;  // kAll: sequences of all workers

/// An fc, whose gradient shows that of the experts' input, and the experts.
graph::Graph graph_with_experts(std::int64_t top, double balance) {
  graph::Graph graph("tiny", {kPositions, kFeatures}, 1);
  graph::Layer fc;
  fc.name = "fc", fc.kind = graph::Kind::fc, fc.inputs = {0}, fc.channels = kFeatures;
  graph.append(fc);
  graph::Layer experts;
  experts.name = "mlp", experts.kind = graph::Kind::experts, experts.inputs = {1}, experts.channels = 5;
  experts.experts = kExperts, experts.experts_top = top, experts.expert_capacity = 1, experts.balance = balance;
  graph.append(experts);
  return graph;
}

/// The same on all workers, but for the slices that they hold.
void set_weights(GraphModule& module) {
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) {
    const tensor::Entry& entry = module.arena().entries()[i];
    const std::vector<std::int64_t> shape = entry.whole();
    const at::Tensor wave = (at::arange(at::empty(shape).numel(), at::kDouble) * 1.37 + 0.9 * static_cast<double>(i)).sin().reshape(shape);
    module.arena().parameter(i).copy_(entry.slice ? tensor::cut(wave, *entry.slice) : wave);
  }
}

at::Tensor values_of(double seed) {
  return ((at::arange(kAll * kPositions * kFeatures, at::kDouble) + seed) * 0.731).sin().mul_(1.5).reshape({kAll, kPositions, kFeatures});
}

struct Found {
  at::Tensor output, input;           // of this worker's sequences
  std::vector<at::Tensor> gradients;  // by entry
};

/// A pass over sequences [first, first + count).
Found found_by(comm::Communicator* workers, std::int64_t top, std::int64_t first, std::int64_t count) {
  GraphModule module(graph_with_experts(top, 0.7), {.dtype = at::kDouble, .data = workers});
  set_weights(module);
  Pass pass;
  pass.weight = 0.4;
  Trace trace;
  Found found;
  found.output = module.run(values_of(1).narrow(0, first, count), pass, &trace);
  found.input = module.back(values_of(50).narrow(0, first, count), pass, trace, nullptr, /*wants_input=*/true);
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) found.gradients.push_back(module.arena().gradient(i).clone());
  return found;
}

void expect_near(const at::Tensor& here, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(here.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(here, expected, 1e-10, 1e-12)) << what;
}

/// By how much the gate prefers what it chooses, at the nearest to a tie.
double least_margin(std::int64_t top) {
  GraphModule module(graph_with_experts(top, 0.7), {.dtype = at::kDouble});
  set_weights(module);
  const tensor::Arena& arena = module.arena();
  const at::Tensor x = at::matmul(values_of(1), arena.parameter(0).t()) + arena.parameter(1);
  const at::Tensor p = std::get<0>(at::softmax(at::matmul(x, arena.parameter(2).t()), -1).sort(-1, /*descending=*/true));
  return (p.narrow(-1, 0, top) - p.narrow(-1, 1, top)).min().item<double>();
}

TEST(SpreadExperts, AreThoseOfOneWorkerWhateverTheShares) {
  for (const std::int64_t top : {1, 2}) {
    EXPECT_GT(least_margin(top), 1e-6) << "sums in another order must not change the gate's choice";
    const Found alone = found_by(nullptr, top, 0, kAll);
    EXPECT_TRUE(top == 2 || alone.output.eq(0).all(-1).any().item<bool>()) << "some positions find no room";
    for (const std::vector<std::int64_t>& shares : {std::vector<std::int64_t>{3, 3}, {5, 1}, {0, 6}, {2, 1, 3, 0}}) {
      auto group = comm::local_group(static_cast<int>(shares.size()));
      std::vector<Found> found(shares.size());
      std::vector<std::thread> threads;
      for (std::size_t rank = 0; rank < shares.size(); ++rank)
        threads.emplace_back([&, rank] {
          std::int64_t first = 0;
          for (std::size_t before = 0; before < rank; ++before) first += shares[before];
          found[rank] = found_by(group[rank].get(), top, first, shares[rank]);
        });
      for (std::thread& thread : threads) thread.join();

      std::vector<at::Tensor> outputs, inputs;
      for (const Found& each : found) outputs.push_back(each.output), inputs.push_back(each.input);
      expect_near(at::cat(outputs), alone.output, "output");
      expect_near(at::cat(inputs), alone.input, "gradient of the input");
      // fc.weight, fc.bias and the gate are summed over the workers by whoever averages; experts' gradients are sums already.
      for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
        std::vector<at::Tensor> parts;
        for (const Found& each : found) parts.push_back(each.gradients[i]);
        expect_near(i < 3 ? at::stack(parts).sum(0) : at::cat(parts), alone.gradients[i], "entry " + std::to_string(i));
      }
    }
  }
}

/// In loops: weight · balance · Σ over sequences of positions · experts · Σ_e f_e P_e.
double balance_loss(const at::Tensor& x, const at::Tensor& gate, double factor) {
  double sum = 0;
  for (std::int64_t s = 0; s < x.size(0); ++s) {
    const at::Tensor p = at::softmax(at::mm(x[s], gate.t()), -1);
    std::vector<double> share(kExperts, 0), mean(kExperts, 0);
    for (std::int64_t t = 0; t < kPositions; ++t) {
      share[static_cast<std::size_t>(p[t].argmax().item<std::int64_t>())] += 1.0 / kPositions;
      for (std::int64_t e = 0; e < kExperts; ++e) mean[static_cast<std::size_t>(e)] += p[t][e].item<double>() / kPositions;
    }
    for (std::size_t e = 0; e < kExperts; ++e) sum += factor * kPositions * kExperts * share[e] * mean[e];
  }
  return sum;
}

TEST(BalanceLoss, HasTheGradientOfItsFormula) {
  for (const std::int64_t top : {1, 2}) {
    const auto gradients_of = [&](double balance) {
      graph::Graph graph("tiny", {kPositions, kFeatures}, 1);
      graph::Layer experts = graph_with_experts(top, balance).layers()[2];
      experts.inputs = {0};
      graph.append(experts);
      GraphModule module(graph, {.dtype = at::kDouble});
      set_weights(module);
      Pass pass;
      pass.weight = 0.4;
      Trace trace;
      module.run(values_of(1), pass, &trace);
      const at::Tensor input = module.back(values_of(50), pass, trace, nullptr, /*wants_input=*/true);
      return std::tuple(input, module.arena().gradient(0).clone(), module.arena().parameter(0).clone());
    };
    const auto [input, gate_gradient, gate] = gradients_of(0.7);
    const auto [plain_input, plain_gate_gradient, same] = gradients_of(0);
    const at::Tensor x = values_of(1).contiguous();
    const auto slopes = [&](const at::Tensor& values) {
      constexpr double kStep = 1e-6;
      at::Tensor result = at::empty_like(values);
      double *value = values.data_ptr<double>(), *slope = result.data_ptr<double>();
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        const double centre = value[i];
        value[i] = centre + kStep;
        const double above = balance_loss(x, gate, 0.4 * 0.7);
        value[i] = centre - kStep;
        slope[i] = (above - balance_loss(x, gate, 0.4 * 0.7)) / (2 * kStep);
        value[i] = centre;
      }
      return result;
    };
    EXPECT_TRUE(at::allclose(gate_gradient - plain_gate_gradient, slopes(gate), 1e-6, 1e-8));
    EXPECT_TRUE(at::allclose(input - plain_input, slopes(x), 1e-6, 1e-8));
  }
}

// What becomes of a position depends on those before it alone.
TEST(Experts, ALaterPositionChangesNoEarlierOne) {
  for (const std::int64_t top : {1, 2}) {
    GraphModule module(graph_with_experts(top, 0), {.dtype = at::kDouble});
    set_weights(module);
    const at::Tensor before = module.run(values_of(1), Pass{}, nullptr);
    for (std::int64_t position = 1; position < kPositions; ++position) {
      at::Tensor changed = values_of(1);
      changed.narrow(1, position, kPositions - position).neg_();
      const at::Tensor after = module.run(changed, Pass{}, nullptr);
      EXPECT_TRUE(at::equal(after.narrow(1, 0, position), before.narrow(1, 0, position))) << position;
      EXPECT_FALSE(at::equal(after, before));
    }
  }
}

TEST(SpreadExperts, AsManyAsTheWorkersCannotShareAreRefused) {
  auto group = comm::local_group(3);
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&] {
      try {
        GraphModule module(graph_with_experts(1, 0), {.data = comm.get()});
        ADD_FAILURE();
      } catch (const ConfigError& problem) {
        const std::string text = problem.what();
        EXPECT_NE(text.find("model.experts=4"), std::string::npos) << text;
        EXPECT_NE(text.find("model.experts=3 or 6"), std::string::npos) << text;
        EXPECT_NE(text.find("parallel.data=2"), std::string::npos) << text;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace paceline::nn

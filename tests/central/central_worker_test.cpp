// A worker of a parameter server: it leaves off what is cancelled, and with an optimizer of its own pushes the steps that this makes.
// Momentum is applied once, whoever has it.
#include "paceline/central/central_worker.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/central/central.h"
#include "paceline/central/server_plan.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/finite_tensors.h"

namespace paceline::central {
namespace {

/// Counts what it is asked; says "cancelled" to the question of that number, or in its advice.
struct Script {
  int cancelled_at = -1;
  bool advice_cancelled = false;
  int pulls = 0, reports = 0, questions = 0, pushes = 0;
};

class ScriptedClient final : public ps::Client {
 public:
  explicit ScriptedClient(Script& script) : script_(script) {}
  void pull(float*, float) override { ++script_.pulls; }
  ps::Advice report(const ps::Report&, const float*) override {
    ++script_.reports;
    return {.cancelled = script_.advice_cancelled};
  }
  ps::Admission push(float*, const ps::Push&) override { return ++script_.pushes, ps::Admission{}; }
  bool cancelled() override { return ++script_.questions == script_.cancelled_at; }

 private:
  Script& script_;
};

/// What a worker needs around it, with softmax regression or a small perceptron.
struct Bench {
  explicit Bench(std::vector<std::int64_t> hidden, int workers = 2) : module(graph_of(std::move(hidden)), options()) {
    context.emplace(
        step::Context{.model = module, .optim = optim, .mesh = mesh, .bus = bus, .clock = clock, .compress = compress, .seed = 5});
    settings.workers = workers;
  }

  static graph::Graph graph_of(std::vector<std::int64_t> hidden) {
    graph::ModelConfig config;
    config.network = "mlp", config.input = {1, 3, 3}, config.hidden = std::move(hidden), config.classes = 4;
    return graph::make_graph(config);
  }
  static nn::GraphModule::Options options() {
    nn::GraphModule::Options made;
    made.seed = 3;
    return made;
  }
  static step::Batch batch(std::int64_t step) {
    const at::Tensor inputs = ((at::arange(45, at::kDouble) + static_cast<double>(613 * step)) * 0.731).sin() * 1.4;
    return {inputs.to(at::kFloat).reshape({5, 1, 3, 3}), at::remainder(at::arange(5, at::kLong) * 3 + step, 4), 5};
  }

  optim::OptimConfig optim;
  std::unique_ptr<comm::Communicator> comm = std::move(comm::local_group(1).front());
  comm::Mesh mesh{*comm};
  observe::Bus bus;
  SteadyClock clock;
  compress::CompressConfig compress;
  nn::GraphModule module;
  std::optional<step::Context> context;
  Settings settings;
};

Script play(Script script, const std::string& consistency, double pause_ms = 0) {
  Bench bench({7, 7});
  bench.settings.ps.consistency = consistency;
  if (pause_ms > 0) bench.settings.timing.pause_probability = 1, bench.settings.timing.pause_ms = pause_ms;
  CentralWorker worker(*bench.context, bench.settings, std::make_unique<ScriptedClient>(script), 0);
  const at::Tensor sums = worker.minibatch(Bench::batch(0), {.step = 1, .rate = 0.1});
  EXPECT_GT(sums[0].item<double>(), 0) << "the loss is known all the same";
  EXPECT_TRUE(worker.visits());
  return script;
}

TEST(CentralWorker, AsksWhileItComputesAndPushesWhatCounts) {
  const Script script = play({}, "k_sync");
  EXPECT_GE(script.questions, 1);
  EXPECT_EQ(script.pushes, 1);
  EXPECT_EQ(play({}, "asp").questions, 0) << "there is nothing to ask where nothing is cancelled";
}

TEST(CentralWorker, LeavesOffInTheMiddleOfItsBackwardPass) {
  const Script script = play({.cancelled_at = 1}, "k_sync");  // three layers: the first question comes after the last of them
  EXPECT_EQ(script.questions, 1);
  EXPECT_EQ(script.reports, 1);
  EXPECT_EQ(script.pushes, 0);
}

TEST(CentralWorker, LeavesOffBeforeItsBackwardPassWhenItsReportIsAnsweredSo) {
  const Script script = play({.advice_cancelled = true}, "k_sync");
  EXPECT_EQ(script.questions, 0);
  EXPECT_EQ(script.pushes, 0);
}

TEST(CentralWorker, AStragglerStopsInTheMiddleOfItsPause) {
  constexpr double kDay = 24 * 3600e3;
  const Script script = play({.cancelled_at = 20}, "k_batch_sync", kDay);
  EXPECT_EQ(script.questions, 20);
  EXPECT_EQ(script.pushes, 0);
}

// ---- optimizers on the workers, against softmax regression in double precision

/// W [4, 9] and b [4], and what an optimizer keeps for them.
struct Model {
  at::Tensor weight, bias;
};

struct Gradient {
  at::Tensor weight, bias;
};

Gradient gradient_of(const Model& model, const step::Batch& batch) {
  const at::Tensor inputs = batch.inputs.to(at::kDouble).flatten(1);
  at::Tensor error = at::softmax(at::addmm(model.bias, inputs, model.weight.t()), 1);
  error.sub_(at::one_hot(batch.targets, 4).to(at::kDouble)).div_(static_cast<double>(inputs.size(0)));
  return {error.t().mm(inputs), error.sum(0)};
}

/// One tensor's optimizer on one worker: returns its step, which is subtracted.
struct Own {
  at::Tensor first, second;
  int steps = 0;

  at::Tensor step(const optim::OptimConfig& optim, at::Tensor gradient, const at::Tensor& parameters, double decay, double rate) {
    if (!first.defined()) first = at::zeros_like(gradient), second = at::zeros_like(gradient);
    ++steps;
    gradient = gradient + decay * parameters;
    if (optim.name == "sgd") {
      first = optim.momentum * first + gradient;
      return rate * (optim.nesterov ? gradient + optim.momentum * first : first);
    }
    first = optim.beta1 * first + (1 - optim.beta1) * gradient;
    second = optim.beta2 * second + (1 - optim.beta2) * gradient * gradient;
    const at::Tensor mean = first / (1 - std::pow(optim.beta1, steps)), square = second / (1 - std::pow(optim.beta2, steps));
    return rate * mean / (square.sqrt() + optim.epsilon);
  }
};

struct OwnCopy {
  Model pulled;
  Own weight, bias;
};

constexpr int kTurns = 3, kSteps = 11;
double rate_at(std::int64_t step) { return 0.2 / (1 + 0.1 * static_cast<double>(step)); }

/// Workers that take equally long come in turn: each pulls after the push of the one two before it, so with three of them minibatch k is
/// computed on the parameters after the steps 0 … k−3, and the last two are never applied.
Model played_by_hand(Model model, const optim::OptimConfig& optim, bool by_staleness) {
  std::vector<OwnCopy> workers(kTurns);
  std::vector<std::pair<at::Tensor, at::Tensor>> steps;
  const auto apply = [&](int k) {
    const double factor = by_staleness ? 1.0 / std::max(1, std::min(k, kTurns - 1)) : 1;
    model.weight = model.weight - factor * steps[static_cast<std::size_t>(k)].first;
    model.bias = model.bias - factor * steps[static_cast<std::size_t>(k)].second;
  };
  for (int k = 0; k < kSteps; ++k) {
    if (k >= kTurns) apply(k - kTurns);
    OwnCopy& worker = workers[static_cast<std::size_t>(k % kTurns)];
    const Gradient gradient = gradient_of(model, Bench::batch(k));
    steps.emplace_back(worker.weight.step(optim, gradient.weight, model.weight, optim.weight_decay, rate_at(k)),
                       worker.bias.step(optim, gradient.bias, model.bias, 0, rate_at(k)));
  }
  apply(kSteps - kTurns);
  return model;
}

Model model_in(nn::GraphModule& module) {
  Model model;
  for (const tensor::Entry& entry : module.arena().entries()) {
    const at::Tensor values = module.arena().parameters().narrow(0, entry.offset, entry.count).to(at::kDouble);
    if (entry.shape.size() == 2) model.weight = values.reshape({4, 9}).clone();
    else model.bias = values.clone();
  }
  return model;
}

TEST(OptimizersOnWorkers, MakeTheStepsOfAScriptPlayedByHand) {
  const optim::OptimConfig heavy_ball{.momentum = 0.8, .weight_decay = 0.02}, adam{.name = "adam", .weight_decay = 0.01};
  optim::OptimConfig nesterov = heavy_ball;
  nesterov.nesterov = true;
  for (const optim::OptimConfig& optim : {heavy_ball, nesterov, adam})
    for (const char* rule : {"asgd", "staleness_aware"}) {
      Bench bench({}, kTurns);
      bench.optim = optim;
      bench.settings.ps.rule = rule, bench.settings.ps.optimizer = "worker", bench.settings.ps.executor = "virtual";
      bench.settings.timing.distribution = "constant";
      const Model expected = played_by_hand(model_in(bench.module), optim, rule == std::string("staleness_aware"));
      const auto strategy = make_central(*bench.context, bench.settings);
      for (std::int64_t k = 0; k < kSteps; ++k) strategy->step(Bench::batch(k), {.step = k + 1, .rate = rate_at(k)});
      strategy->agree();
      const Model actual = model_in(bench.module);
      EXPECT_LT((actual.weight - expected.weight).abs().max().item<double>(), 2e-6) << rule << ' ' << optim.name << optim.nesterov;
      EXPECT_LT((actual.bias - expected.bias).abs().max().item<double>(), 2e-6) << rule << ' ' << optim.name << optim.nesterov;
    }
}

// ---- a gradient that is not finite, by either clock

/// The parameters after some steps of one worker, of which one has a batch with an infinite value.
at::Tensor after_a_refused_gradient(const std::string& executor, const ps::PsConfig& ps, const optim::OptimConfig& optim,
                                    std::int64_t spoilt) {
  Bench bench({7}, 1);
  bench.optim = optim;
  bench.settings.ps = ps, bench.settings.ps.executor = executor;
  const auto strategy = make_central(*bench.context, bench.settings);
  for (std::int64_t k = 0; k < kSteps; ++k) {
    step::Batch batch = Bench::batch(k);
    if (k == spoilt) batch.inputs[0][0][0][0] = INFINITY;
    strategy->step(batch, {.step = k + 1, .rate = rate_at(k)});
  }
  strategy->centralised()->finish();
  strategy->agree();
  EXPECT_EQ(strategy->centralised()->served().refused, 1) << executor;
  EXPECT_TRUE(step::all_finite(bench.module.arena().parameters())) << executor;
  return bench.module.arena().parameters().clone();
}

void expect_clocks_agree(const ps::PsConfig& ps, const optim::OptimConfig& optim) {
  for (const std::int64_t spoilt : {3, 4, 5}) {  // at each place of a period of three
    const at::Tensor by_threads = after_a_refused_gradient("threads", ps, optim, spoilt);
    const at::Tensor by_virtual_clock = after_a_refused_gradient("virtual", ps, optim, spoilt);
    EXPECT_TRUE(at::equal(by_threads, by_virtual_clock)) << ps.rule << ' ' << optim.name << " spoilt " << spoilt;
  }
}

TEST(RefusedGradient, LeavesAWorkersOptimizerTheSameByEitherClock) {
  const optim::OptimConfig adam{.name = "adam"}, heavy_ball{.momentum = 0.8};
  for (const optim::OptimConfig& optim : {adam, heavy_ball}) {
    ps::PsConfig steps;
    steps.rule = "asgd", steps.optimizer = "worker";
    expect_clocks_agree(steps, optim);
    steps.rule = "downpour", steps.period = 3;
    expect_clocks_agree(steps, optim);
    ps::PsConfig replica;
    replica.rule = "easgd", replica.period = 3;
    expect_clocks_agree(replica, optim);
  }
}

// ---- momentum that travels in what is pushed

/// The parameters after some pushes of one worker to its server.
std::vector<float> pushed_to_server(const Bench& bench) {
  const ServerPlan plan(*bench.context, bench.settings, 1);
  const auto concurrent = plan.make_server(0);
  const ps::PushCompression compression = plan.push_compression();
  const compress::RangeLayout layout = ps::parts_of(plan.layout());
  std::optional<ps::PushEncoder> encoder;
  if (!compression.name.empty()) encoder.emplace(compression, layout, 0, 0, layout.length);
  std::vector<float> parameters(static_cast<std::size_t>(layout.length)), gradient(parameters.size());
  concurrent->join(0);
  for (int step = 0; step < kSteps; ++step) {
    concurrent->pull(0, parameters.data(), 0.1F);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = std::sin(0.37F * static_cast<float>(i * 7) + static_cast<float>(step));
    if (encoder) ps::PushDecoder(compression, layout).decode(encoder->encode(gradient.data(), 0), gradient.data());
    concurrent->push(0, gradient.data(), {.rate = 0.1F});
  }
  concurrent->pull(0, parameters.data(), 0.1F);
  return parameters;
}

TEST(MomentumOfDgc, IsNotAppliedByTheServerAsWell) {
  Bench plain({}, 1), compressed({}, 1);
  plain.optim.momentum = 0, compressed.optim.momentum = 0.8;
  compressed.compress.density = 1, compressed.compress.warmup_epochs = 0;  // all of a velocity is sent, and nothing of it stays
  compressed.context->compression = "dgc";
  EXPECT_THAT(pushed_to_server(compressed), testing::Pointwise(testing::FloatNear(1e-5F), pushed_to_server(plain)));
}

TEST(MomentumOfDgc, IsRefusedWhereSomebodyElseHasOne) {
  const auto why_not = [](const std::string& rule, const optim::OptimConfig& optim, const std::string& optimizer = "server") {
    Settings settings{.workers = 2};
    settings.ps.executor = "processes", settings.ps.optimizer = optimizer, settings.ps.rule = rule;
    try {
      settings.validate(optim, "dgc");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  const optim::OptimConfig sgd{.momentum = 0.9};
  optim::OptimConfig nesterov = sgd;
  nesterov.nesterov = true;
  EXPECT_EQ(why_not("asgd", sgd), "");
  EXPECT_THAT(why_not("asgd", nesterov), HasSubstr("nesterov"));
  EXPECT_THAT(why_not("asgd", {.name = "adam"}), HasSubstr("optim.name=sgd"));
  EXPECT_THAT(why_not("asgd", sgd, "worker"), HasSubstr("use ps.optimizer=server"));
  for (const char* rule : {"dana", "dc_asgd", "lc_asgd"}) EXPECT_THAT(why_not(rule, sgd), HasSubstr("use comm.compression=topk")) << rule;
}

}  // namespace
}  // namespace paceline::central

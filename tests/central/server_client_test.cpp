// A parameter server in a loop of one's own, against the same updates by hand.
#include "paceline/central/server_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"

namespace paceline::loop {
namespace {

using testing::HasSubstr;

constexpr double kRate = 0.1;

torch::nn::Linear made() {
  torch::nn::Linear net(5, 3);
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : net->parameters())
    parameter.copy_((torch::arange(parameter.numel(), torch::kFloat) * 0.7).sin().reshape(parameter.sizes()));
  return net;
}
torch::Tensor loss_of(torch::nn::Linear& net, int worker, int step) {
  const torch::Tensor x = ((torch::arange(20, torch::kFloat) + static_cast<float>(31 * step + 7 * worker)) * 0.37).sin().reshape({4, 5});
  return (net->forward(x) - x.narrow(1, 0, 3)).square().mean();
}
bool alike(torch::nn::Linear& a, torch::nn::Linear& b) {
  return torch::allclose(a->weight, b->weight, 1e-5, 1e-6) && torch::allclose(a->bias, b->bias, 1e-5, 1e-6);
}

ServerOptions options_of(const std::string& rule, const std::string& consistency) {
  ServerOptions options;
  options.ps.rule = rule, options.ps.consistency = consistency;
  options.optim.momentum = 0;
  return options;
}

/// One worker that trains with SGD, in `steps` steps whose gradient is the mean over `workers` minibatches.
torch::nn::Linear plain(int workers, int steps, double momentum) {
  torch::nn::Linear net = made();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kRate).momentum(momentum));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int worker = 0; worker < workers; ++worker) (loss_of(net, worker, step) / workers).backward();
    optimizer.step();
  }
  return net;
}

TEST(ServerClient, SynchronousWorkersTrainAsOne) {
  for (const std::int64_t servers : {1, 2}) {
    ServerOptions options = options_of("average", "bsp");
    options.optim.momentum = 0.9, options.ps.servers = servers;
    torch::nn::Linear model = made();
    ParameterServer server(*model, 3, options);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < 3; ++worker)
      threads.emplace_back([&, worker] {
        torch::nn::Linear net(5, 3);  // of any values: the server's count
        ServerClient client(*net, server, worker);
        EXPECT_EQ(client.worker(), worker);
        for (int step = 0; step < 5; ++step) {
          net->zero_grad();
          loss_of(net, worker, step).backward();
          client.step(kRate);
        }
      });
    for (std::thread& thread : threads) thread.join();
    server.show();
    torch::nn::Linear expected = plain(3, 5, 0.9);
    EXPECT_TRUE(alike(model, expected)) << servers;
    EXPECT_EQ(server.updates(), 5);
  }
}

/// What one asynchronous worker and its server have after some steps.
torch::nn::Linear alone(const ServerOptions& options, int steps, double momentum = 0) {
  torch::nn::Linear model = made(), net = made();
  ParameterServer server(*model, 1, options);
  ServerClient client(*net, server, 0);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kRate).momentum(momentum));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net, 0, step).backward();
    if (options.ps.optimizer == "worker" || options.ps.rule == "easgd") optimizer.step();
    client.step(kRate, 0.5);
  }
  server.show();
  EXPECT_TRUE(options.ps.rule == "easgd" || alike(net, model)) << "a step ends with a pull";
  return model;
}

TEST(ServerClient, TheServerShowsTheRunningMean) {
  ServerOptions options = options_of("asgd", "asp");
  options.ps.averaging = 0.75;
  torch::nn::Linear model = made(), net = made();
  ParameterServer server(*model, 1, options);
  ServerClient client(*net, server, 0);
  torch::Tensor mean;
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    loss_of(net, 0, step).backward();
    client.step(kRate);
    const torch::Tensor now = net->weight.detach().clone();
    mean = step == 0 ? now : 0.75 * mean + 0.25 * now;
  }
  server.show();
  EXPECT_TRUE(torch::allclose(model->weight, mean, 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(model->weight, net->weight, 1e-4, 1e-5)) << "or the test says nothing";
}

TEST(ServerClient, TheLoopsOwnOptimizerMayMakeTheSteps) {
  ServerOptions options = options_of("asgd", "asp");
  options.ps.optimizer = "worker";
  torch::nn::Linear trained = alone(options, 4, 0.9), expected = plain(1, 4, 0.9);
  EXPECT_TRUE(alike(trained, expected));
}

TEST(ServerClient, VisitsOnceInAPeriod) {
  for (const char* optimizer : {"server", "worker"}) {
    ServerOptions options = options_of("downpour", "asp");
    options.ps.period = 2, options.ps.optimizer = optimizer;
    torch::nn::Linear four = alone(options, 4), expected = plain(1, 4, 0);
    EXPECT_TRUE(alike(four, expected)) << optimizer;
    torch::nn::Linear model = made(), net = made();
    ParameterServer server(*model, 1, options);
    ServerClient client(*net, server, 0);
    loss_of(net, 0, 0).backward();
    client.step(kRate);
    EXPECT_EQ(server.updates(), 0) << optimizer;
  }
}

TEST(ServerClient, ElasticReplicasPushTheirParameters) {
  ServerOptions options = options_of("easgd", "asp");
  options.ps.period = 1, options.ps.elasticity = 0.25;
  torch::nn::Linear centre = alone(options, 1), start = made(), moved = plain(1, 1, 0);
  EXPECT_TRUE(torch::allclose(centre->weight, start->weight + 0.25 * (moved->weight - start->weight), 1e-5, 1e-6));
}

/// One minibatch of NaNs: the servers refuse what comes of it, and the worker goes on with their parameters.
TEST(ServerClient, GoesOnAfterWhatIsNotFinite) {
  for (const char* rule : {"asgd", "easgd", "lc_asgd"}) {
    ServerOptions options = options_of(rule, "asp");
    options.ps.period = 1;
    torch::nn::Linear model = made(), net = made();
    ParameterServer server(*model, 1, options);
    ServerClient client(*net, server, 0);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kRate));
    for (int step = 0; step < 6; ++step) {
      net->zero_grad();
      const torch::Tensor loss = loss_of(net, 0, step) * (step == 2 ? NAN : 1);
      loss.backward();
      if (std::string(rule) == "easgd") optimizer.step();
      ASSERT_NO_THROW(client.step(kRate, loss.item<double>())) << rule;
      EXPECT_TRUE(net->weight.isfinite().all().item<bool>()) << rule << ", step " << step;
    }
    EXPECT_EQ(server.updates(), 5) << rule;
  }
}

TEST(ServerClient, RanksServeAndWork) {
  ServerOptions options = options_of("average", "bsp");
  auto group = comm::local_group(3);
  torch::nn::Linear trained{nullptr};
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&, ranks = std::shared_ptr<comm::Communicator>(std::move(comm))] {
      const ps::Cluster cluster = ps::among(ranks, 1);
      torch::nn::Linear net = made();
      if (serve(*net, options, cluster)) return;
      ServerClient client(*net, options, cluster);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        loss_of(net, client.worker(), step).backward();
        client.step(kRate);
      }
      if (client.worker() == 0) trained = net;
    });
  for (std::thread& thread : threads) thread.join();
  torch::nn::Linear expected = plain(2, 3, 0);
  EXPECT_TRUE(alike(trained, expected));
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(ServerClient, WhatCompensatesByTheLossMustBeGivenIt) {
  const ServerOptions options = options_of("lc_asgd", "asp");
  torch::nn::Linear model = made(), net = made();
  ParameterServer server(*model, 1, options);
  ServerClient client(*net, server, 0);
  loss_of(net, 0, 0).backward();
  EXPECT_THROW(client.step(0.1), ConfigError);
  EXPECT_NO_THROW(client.step(0.1, 0.7));
}

TEST(ServerClient, RefusesWhatItCannotServe) {
  torch::nn::Linear model = made(), other(5, 4), numbers(5, 3);
  numbers->to(torch::kDouble);
  const ServerOptions options = options_of("asgd", "asp");
  ParameterServer server(*model, 2, options);
  EXPECT_THAT(refusal([&] { ServerClient(*other, server, 0); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([&] { ServerClient(*numbers, server, 0); }), HasSubstr("Double"));
  torch::nn::Linear net = made();
  EXPECT_THAT(refusal([&] { ServerClient(*net, server, 2); }), HasSubstr("worker 2 of 2"));
  EXPECT_THAT(refusal([&] { ParameterServer(*net, 2, options_of("asgdd", "asp")); }), HasSubstr("asgd"));
  EXPECT_FALSE(serve(*net, options, {})) << "no launcher says that this is a server";
  EXPECT_THAT(refusal([&] { ServerClient(*net, options, ps::Cluster{}); }), HasSubstr("--servers"));
}

}  // namespace
}  // namespace paceline::loop

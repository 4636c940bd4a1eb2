// A parameter server for a user's own training loop: any torch::nn::Module, one call per step.
//
//   paceline::ServerOptions options;                                    // rule, consistency and optimizer of the servers
//   options.ps.rule = "dc_asgd";
//   if (paceline::serve(*net, options)) return 0;                       // this process is a server: it has served, and all have left
//   paceline::ServerClient server(*net, options);                       // a worker: the module has the servers' parameters
//   for (…) {
//     net->zero_grad();
//     loss_of(*net, batch).backward();
//     server.step(0.05);                                                // pushes the gradient, pulls what the servers have now
//   }
//
// in as many processes as `paceline run --servers 1 --workers 4 -- program` starts. In one process, workers are threads with a module
// each around a ParameterServer.
//
// Usually the servers' optimizer (options.optim) makes the updates. With options.ps.optimizer = "worker" the loop's own torch::optim does:
// it makes its step before server.step(), which pushes how far the parameters moved; so it does with the rule easgd, whose workers push
// their parameters. Rules with a period (downpour, easgd) visit the servers once in ps.period steps. Parameters lie in host memory, in
// float. Buffers (running statistics) stay with their worker.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>

#include "paceline/central/settings.h"
#include "paceline/compress/compressor.h"

namespace paceline {

struct ServerOptions {
  ps::PsConfig ps = {};                    // [ps] of a recipe: rule, consistency, servers, deadlines
  optim::OptimConfig optim = {};           // [optim] of a recipe; the rate is step()'s
  std::string compression = "none";        // of pushes between processes
  compress::CompressConfig compress = {};  // its settings
  std::uint64_t seed = 0;
};

/// Servers in this process, for workers that are its threads.
class ParameterServer {
 public:
  /// The servers begin with the module's parameters. ConfigError if such servers are impossible.
  ParameterServer(torch::nn::Module& module, int workers, const ServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  /// The module that it was made with gets the servers' parameters: for an evaluation, or to save it.
  void show();
  std::int64_t updates() const;

 private:
  friend class ServerClient;
  struct State;
  std::unique_ptr<State> state_;
};

class ServerClient {
 public:
  /// Worker `worker` (from 0) of servers in this process; the server outlives it. `module` is the worker's own, like the server's.
  ServerClient(torch::nn::Module& module, ParameterServer& server, int worker);
  /// A worker of servers in other processes. `cluster`: what the launcher says; ps::among() for ranks of MPI.
  ServerClient(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster = ps::discover());
  ~ServerClient();
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  /// After backward(), or after the loop's own optimizer where that makes the updates. Returns when the module has the parameters to
  /// continue with, which may mean to wait for other workers: that is the consistency's. What is not finite the servers refuse, and the
  /// worker goes on with their parameters. `loss` of the minibatch: ConfigError if lc_asgd, which compensates by it, is given none.
  void step(double rate, std::optional<double> loss = std::nullopt);
  int worker() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// In a process that is a server: serves the module until all workers have come and gone, and returns true. False elsewhere. PeerError
/// where workers are missing for longer than twice ps.deadline_s.
bool serve(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster = ps::discover());

}  // namespace paceline

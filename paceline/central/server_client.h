// A parameter server for a user's own training loop: any torch::nn::Module, one call per step.
//
//   paceline::ServerOptions options;                                    // rule, consistency and optimizer of the servers
//   options.ps.rule = "dc_asgd";
//   if (paceline::serve(*net, options)) return 0;                       // this process was a server, and all workers have left
//   paceline::ServerClient server(*net, options);                       // a worker: the module has the servers' parameters
//   for (…) {
//     net->zero_grad();
//     loss_of(*net, batch).backward();
//     server.step(0.05);                                                // pushes the gradient, pulls what the servers have now
//   }
//
// in as many processes as `paceline run --servers 1 --workers 4 -- program` starts. Within one process, workers are threads that share a
// ParameterServer and have a module each.
//
// Usually the servers' optimizer (options.optim) makes the updates. With options.ps.optimizer = "worker" the loop's own torch::optim does:
// it makes its step before server.step(), which pushes how far the parameters moved; so it does with the rule easgd, whose workers push
// their parameters. Under rules with a period (downpour, easgd), workers visit the servers once every ps.period steps. Parameters are
// floats in host memory. Buffers (running statistics) stay with their worker.
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

/// Servers in this process, for workers that are threads of it.
class ParameterServer {
 public:
  /// The servers start with the module's parameters. ConfigError if the settings are impossible.
  ParameterServer(torch::nn::Module& module, int workers, const ServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  /// Copies the servers' parameters into the module that it was made with, to evaluate or save it.
  void show();
  std::int64_t updates() const;

 private:
  friend class ServerClient;
  struct State;
  std::unique_ptr<State> state_;
};

class ServerClient {
 public:
  /// Worker `worker` (from 0) of servers in this process; the server outlives it. `module` is the worker's own and has the same parameters
  /// as the server's.
  ServerClient(torch::nn::Module& module, ParameterServer& server, int worker);
  /// A worker of servers in other processes. `cluster`: from the launcher; ps::among() for MPI ranks.
  ServerClient(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster = ps::discover());
  ~ServerClient();
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  /// Call it after backward(), or after the loop's own optimizer if that makes the updates. Returns once the module has the parameters to
  /// continue with; depending on the consistency, that may mean waiting for other workers. Servers refuse gradients that are not finite,
  /// and the worker continues with the servers' parameters. `loss` is that of the minibatch: ConfigError if lc_asgd, which compensates with
  /// it, gets none.
  void step(double rate, std::optional<double> loss = std::nullopt);
  int worker() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// In a server process: serves the module until all workers have left, and returns true. Elsewhere: returns false. PeerError if workers are
/// missing for longer than twice ps.deadline_s.
bool serve(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster = ps::discover());

}  // namespace paceline

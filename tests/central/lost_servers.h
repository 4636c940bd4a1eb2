// A server of several processes that a launcher restarts, and the run's folder in which it finds what it had.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "paceline/base/temporary_folder.h"
#include "paceline/central/server_tensors.h"
#include "paceline/central/settings.h"
#include "paceline/observe/run_folder.h"
#include "paceline/ps/concurrent_server.h"

namespace paceline::central {

inline constexpr const char* kJob = "job-1";
inline constexpr std::int64_t kServed = 6;  // parameters

/// Server 1 of two, with one worker.
struct LostServer {
  explicit LostServer(const std::string& consistency = "asp") {
    settings.ps.consistency = consistency;
    settings.cluster.role = ps::Cluster::Role::server, settings.cluster.index = 1;
    settings.cluster.servers = {"here:1", "here:2"};
    settings.cluster.job = kJob, settings.cluster.runs = runs.path().string(), settings.cluster.max_restarts = 3;
  }

  /// As server 0 does once the run is known to be valid.
  std::filesystem::path make_folder() const {
    const auto folder = observe::RunFolder::create(runs.path(), "run");
    std::filesystem::create_directories(folder.servers());
    folder.mark(kJob);
    return folder.servers();
  }

  std::shared_ptr<ps::ConcurrentServer> make_server(std::int64_t length = kServed) const {
    ps::Server::Setup setup;
    setup.segments = {{0, length}};
    setup.length = setup.end = length;
    setup.workers = settings.workers;
    return std::make_shared<ps::ConcurrentServer>(std::make_unique<ps::Server>(settings.ps, optim::OptimConfig{.momentum = 0}, setup),
                                                  ps::ConcurrentServer::Limits{}, clock);
  }

  TemporaryFolder runs;
  VirtualClock clock;
  Settings settings;
};

/// One minibatch of a worker: at a rate of 1, every parameter falls by `gradient`.
inline void visit(ps::ConcurrentServer& server, float gradient, int worker = 0) {
  std::vector<float> values(static_cast<std::size_t>(server.length()));
  server.pull(worker, values.data(), 1);
  std::fill(values.begin(), values.end(), gradient);
  server.push(worker, values.data(), {.rate = 1});
}

inline at::Tensor parameters_of(ps::ConcurrentServer& server) {
  return server.with([](ps::Server& own) { return ServerTensors(own, at::kCPU).parameters().clone(); });
}
inline bool all_are(ps::ConcurrentServer& server, double value) {
  return at::equal(parameters_of(server), at::full({server.length()}, value, at::kFloat));
}

}  // namespace paceline::central

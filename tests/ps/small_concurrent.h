// Hosts of small servers, for tests of what happens between threads.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/ps/concurrent_server.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {

using Floats = std::vector<float>;

inline const optim::OptimConfig kPlain{.momentum = 0};

inline PsConfig with(const std::string& consistency, std::int64_t bound = 0) {
  PsConfig config;
  config.consistency = consistency, config.bound = bound;
  return config;
}

inline std::unique_ptr<Server> make_server(const PsConfig& config, int workers, std::int64_t length, std::int64_t begin = 0,
                                           std::int64_t end = -1) {
  Server::Setup setup;
  setup.segments = {{0, length / 3}, {length / 3, length - length / 3, false}};
  setup.length = length, setup.begin = begin, setup.end = end < 0 ? length : end;
  setup.workers = workers;
  return std::make_unique<Server>(config, kPlain, setup);
}

inline std::shared_ptr<ConcurrentServer> make_concurrent(const PsConfig& config, int workers, std::int64_t length,
                                                         const ConcurrentServer::Limits& limits = {}, const Clock& clock = steady_clock()) {
  auto concurrent = std::make_shared<ConcurrentServer>(make_server(config, workers, length), limits, clock);
  for (int worker = 0; worker < workers; ++worker) concurrent->join(worker);
  return concurrent;
}

inline Floats parameters_of(ConcurrentServer& concurrent) {
  return concurrent.with([](Server& server) { return Floats(server.parameters(), server.parameters() + server.length()); });
}

/// Runs body(worker) on a thread for each, and waits for all.
template <class Body>
void at_once(int workers, const Body& body) {
  std::vector<std::jthread> threads;
  for (int worker = 0; worker < workers; ++worker) threads.emplace_back([&body, worker] { body(worker); });
}

/// What a pull was answered with: "" where it was granted.
inline std::string outcome_of_pull(ConcurrentServer& concurrent, int worker) {
  Floats into(static_cast<std::size_t>(concurrent.length()));
  try {
    concurrent.pull(worker, into.data(), 1);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace paceline::ps

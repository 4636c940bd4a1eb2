// What the tests of the gRPC transport share: a small model, servers for it, and gradients.
#pragma once

#if PACELINE_WITH_GRPC

#include <thread>

#include "paceline/ps/transports/grpc.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {

inline constexpr std::int64_t kLength = 3'000;  // three tensors and a gap
inline constexpr float kRate = 0.25f;

inline const std::string kSecret = "the key of these tests";
inline ServiceOptions keyed(ServiceOptions options) {
  options.security.secret = kSecret;
  return options;
}
inline std::unique_ptr<RemoteClient> connect(const std::vector<std::string>& addresses, const ArenaLayout& layout,
                                             JoinOptions options = {}) {
  options.security.secret = kSecret;
  return connect_grpc(addresses, layout, options);
}

inline ArenaLayout layout() {
  return {.entries = {{"a.weight", {40, 50}, 0, 2000, true}, {"a.bias", {40}, 2000, 40, false}, {"b.weight", {23, 41}, 2048, 943, true}},
          .length = kLength,
          .statistics = 8};
}

struct ServerSettings {
  std::string rule = "asgd", consistency = "asp";
  int workers = 1;
  ConcurrentServer::Limits limits = {};
};

inline std::shared_ptr<ConcurrentServer> make_concurrent(const ServerSettings& settings, std::int64_t begin = 0,
                                                         std::int64_t end = kLength) {
  PsConfig config;
  config.rule = settings.rule, config.consistency = settings.consistency;
  optim::OptimConfig optim;
  optim.momentum = 0.5;
  const Server::Setup setup{.segments = segments_of(layout()),
                            .length = kLength,
                            .begin = begin,
                            .end = end,
                            .statistics = 8,
                            .workers = settings.workers,
                            .place = {}};
  auto server = std::make_unique<Server>(config, optim, setup);
  for (std::int64_t i = begin; i < end; ++i) server->parameters()[i - begin] = static_cast<float>(i % 17);
  return std::make_shared<ConcurrentServer>(std::move(server), settings.limits, steady_clock());
}

/// 20 MB: several pieces of a payload, the last one short, and more than sockets hold.
inline constexpr std::int64_t kMany = 5'000'000;
inline ArenaLayout large_layout() { return {.entries = {{"w", {kMany}, 0, kMany, true}}, .length = kMany}; }
inline std::shared_ptr<ConcurrentServer> make_large_host(const ConcurrentServer::Limits& limits = {}) {
  optim::OptimConfig optim;
  optim.momentum = 0;
  const Server::Setup setup{.segments = segments_of(large_layout()), .length = kMany, .begin = 0, .end = kMany, .workers = 1, .place = {}};
  return std::make_shared<ConcurrentServer>(std::make_unique<Server>(PsConfig{}, optim, setup), limits, steady_clock());
}

/// Servers that share the arena, and where they are.
struct Fleet {
  Fleet(const ServerSettings& settings, int count, const ServiceOptions& options = {}) {
    cuts = cut_ranges(segments_of(layout()), kLength, count, true);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      concurrents.push_back(make_concurrent(settings, cuts[i], cuts[i + 1]));
      ServiceOptions mine = keyed(options);
      mine.begin = cuts[i], mine.end = cuts[i + 1];
      servers.push_back(std::make_unique<GrpcServer>(concurrents.back(), layout(), mine));
      addresses.push_back(servers.back()->address());
    }
  }
  std::vector<std::int64_t> cuts;
  std::vector<std::shared_ptr<ConcurrentServer>> concurrents;
  std::vector<std::unique_ptr<GrpcServer>> servers;
  std::vector<std::string> addresses;
};

/// A gradient that differs by worker, step and element.
inline std::vector<float> gradient_of(int worker, int step) {
  std::vector<float> gradient(kLength);
  for (std::int64_t i = 0; i < kLength; ++i)
    gradient[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + worker * 31 + step * 13) % 29 - 14) / 16;
  return gradient;
}

inline std::vector<float> pulled(Client& client) {
  std::vector<float> parameters(kLength, -1);
  client.pull(parameters.data(), kRate);
  return parameters;
}

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

inline std::int64_t version(const Fleet& fleet) {
  return fleet.concurrents[0]->with([](Server& server) { return server.version(); });
}

}  // namespace paceline::ps

#endif

#include "paceline/comm/engines/common.h"

#include <fmt/format.h>

#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/rank_communicator.h"

namespace paceline::comm {

CommConfig with_hosts(CommConfig config) {
  if (config.shapes() && config.per_host == 0) config.per_host = 1;
  return config;
}

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Endpoint> endpoint, const CommConfig& config,
                                                const std::shared_ptr<Store>& store) {
  if (config.shapes())
    endpoint = shape(std::move(endpoint), {.bytes_per_s = config.link_gbit_per_s * 1e9 / 8,
                                           .latency_s = config.link_latency_us * 1e-6,
                                           .jitter_s = config.link_jitter_us * 1e-6,
                                           .seed = 1});
  Judge judge(store, endpoint->rank(), endpoint->size());
  return std::make_unique<RankCommunicator>(std::move(endpoint), config, std::move(judge));
}

std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> communicator, const CommConfig& config,
                                        const std::shared_ptr<Store>& store) {
  if (config.check) communicator = check(std::move(communicator), config.algorithm);
  if (config.record && communicator->size() > 1) communicator = record(std::move(communicator), store);
  if (!config.fail_at.empty()) communicator = fault(std::move(communicator), static_cast<int>(config.fail_at[0]), config.fail_at[1]);
  return communicator;
}

shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name, Nanoseconds deadline) {
  return [store, world, name, deadline, round = 0](const std::string& own) mutable {
    const std::string prefix = fmt::format("exchange/{}/{}/", name, round++);
    store->set(prefix + std::to_string(world.rank), own);
    std::vector<std::string> all;
    for (int peer = 0; peer < world.size; ++peer) {
      const auto value = store->wait(prefix + std::to_string(peer), deadline);
      if (!value)
        throw PeerError(
            peer, "connect", 0,
            fmt::format("rank {} did not connect within {:.0f} s; if it needs longer, raise comm.deadline_s", peer, seconds(deadline)));
      all.push_back(*value);
    }
    return all;
  };
}

}  // namespace paceline::comm

// What engines have in common: turning an endpoint into a communicator, and exchanging the first messages through the store.
#pragma once

#include <memory>
#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/comm/endpoint.h"
#include "paceline/comm/shared/process_memory.h"
#include "paceline/comm/store.h"
#include "paceline/comm/world.h"

namespace paceline::comm {

/// A communicator over an endpoint, with shaped links if the configuration asks for them.
std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Endpoint> endpoint, const CommConfig& config,
                                                const std::shared_ptr<Store>& store);
/// Adds the decorators that the configuration asks for. `store`: where ranks report what they do; may be null.
std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> communicator, const CommConfig& config,
                                        const std::shared_ptr<Store>& store);

/// Only links between hosts are shaped. If the number of ranks per host is not configured, each rank counts as a host.
CommConfig with_hosts(CommConfig config);

/// An exchange through the store; `name` keeps it apart from others.
shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name, Nanoseconds deadline);

}  // namespace paceline::comm

// The address at which this host can be reached by the others.
#pragma once

#include <string>

namespace paceline::comm {

/// The numeric address of the interface that PACELINE_INTERFACE or GLOO_SOCKET_IFNAME names; otherwise the one from which this host reaches
/// `peer`, or loopback if no other host needs to reach it. Throws ConfigError.
std::string own_address(const std::string& peer, bool several_hosts);

}  // namespace paceline::comm

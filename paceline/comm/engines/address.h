// The address at which this host can be reached by the others.
#pragma once

#include <string>

namespace paceline::comm {

/// Of the interface that PACELINE_INTERFACE or GLOO_SOCKET_IFNAME names; else the one from which this host reaches `peer`, or loopback
/// where nobody else needs to reach it. As numbers. Throws ConfigError.
std::string own_address(const std::string& peer, bool several_hosts);

}  // namespace paceline::comm

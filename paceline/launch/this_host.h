// What the launcher must know about this machine and its network: names, an address for other hosts, a free port.
#pragma once

#include <string>

#include "paceline/base/descriptor.h"

namespace paceline::launch {

/// Whether the name means this host: "localhost", a loopback address, the host's name with or without its domain.
bool is_this_host(const std::string& name);

/// An address of this host that `other` can reach: the one from which packets to it would leave; if its name is not known here, that of the
/// first network interface. Never loopback, to which a host's own name often resolves. Throws ConfigError.
std::string address_towards(const std::string& other);

/// Reserves a port, which no other program gets while this exists. It is bound and does not listen; a server that binds it with
/// SO_REUSEADDR can use it.
class ReservedPort {
 public:
  ReservedPort();

  int number() const { return number_; }

 private:
  Descriptor descriptor_;
  int number_ = 0;
};

}  // namespace paceline::launch

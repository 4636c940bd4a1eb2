// What the launcher must know of this machine and its network: names, an address for the others, a free port.
#pragma once

#include <string>

#include "paceline/base/descriptor.h"

namespace paceline::launch {

/// Whether this is what the name names: "localhost", a loopback number, the host's name with or without its domain.
bool is_this_host(const std::string& name);

/// An address of this host that `other` can reach: the one from which packets to it would leave; where its name is not known here, that of
/// the first network interface. Never loopback, which is where a host's own name often leads. Throws ConfigError.
std::string address_towards(const std::string& other);

/// A port that nobody else gets while this lives. It is bound and does not listen; whoever binds it with SO_REUSEADDR, as servers do, can.
class ReservedPort {
 public:
  ReservedPort();

  int number() const { return number_; }

 private:
  Descriptor descriptor_;
  int number_ = 0;
};

}  // namespace paceline::launch

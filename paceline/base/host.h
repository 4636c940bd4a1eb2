// The name of this machine, and the address at which others reach it.
#pragma once

#include <netdb.h>

#include <optional>
#include <string>

namespace paceline {

std::string host_name();

/// Whether a name or address means the host that uses it: "localhost", 127.0.0.0/8, ::1.
bool names_loopback(const std::string& address);

/// An address as a number.
std::string number_of(const sockaddr* address);

/// The address, as a number, from which packets to `peer` leave; empty: there is no route; nullopt: the name cannot be resolved here.
std::optional<std::string> source_towards(const std::string& peer, int family = AF_UNSPEC);

}  // namespace paceline

// What this machine is called, and where others find it.
#pragma once

#include <netdb.h>

#include <optional>
#include <string>

namespace paceline {

std::string host_name();

/// Whether a name or number reaches nothing but the host that uses it: "localhost", 127.0.0.1 and its like, ::1.
bool names_loopback(const std::string& address);

/// The number of an address.
std::string number_of(const sockaddr* address);

/// The address, as a number, from which packets to `peer` leave; empty: there is no route; nullopt: nobody here knows that name.
std::optional<std::string> source_towards(const std::string& peer, int family = AF_UNSPEC);

}  // namespace paceline

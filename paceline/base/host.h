// What this machine is called.
#pragma once

#include <string>

namespace paceline {

std::string host_name();

/// Whether a name or number reaches nothing but the host that uses it: "localhost", 127.0.0.1 and its like, ::1.
bool names_loopback(const std::string& address);

}  // namespace paceline

// HMAC-SHA-256 (RFC 2104, FIPS 180-4), by OpenSSL: how processes prove that they know a key without showing it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline {

inline constexpr std::size_t kHmacBytes = 32;

/// Throws ConfigError in a build without OpenSSL.
std::string hmac_sha256(std::string_view key, std::string_view data);

/// Compares in constant time: the time does not depend on where two strings of the same length differ.
bool equal_in_constant_time(std::string_view one, std::string_view other);

/// A public name for what `key` belongs to: 16 hexadecimal digits, different for each `purpose`.
std::string public_name(std::string_view key, std::string_view purpose);

}  // namespace paceline

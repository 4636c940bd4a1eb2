// HMAC-SHA-256 (RFC 2104, FIPS 180-4), by OpenSSL: how processes prove that they know a key without showing it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline {

inline constexpr std::size_t kHmacBytes = 32;

/// Throws ConfigError in a build without OpenSSL.
std::string hmac_sha256(std::string_view key, std::string_view data);

/// Takes the same time wherever two strings of one length differ.
bool equal_in_constant_time(std::string_view one, std::string_view other);

/// A name for what `key` belongs to that can be shown to anybody: 16 hexadecimal digits, other ones for another `purpose`.
std::string public_name(std::string_view key, std::string_view purpose);

}  // namespace paceline

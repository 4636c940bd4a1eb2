// A key in a file that only its owner can read.
#pragma once

#include <filesystem>
#include <string>

namespace paceline {

/// Writes the file so that no other user can read it at any moment, whatever the umask is. Throws DataError.
void write_key(const std::filesystem::path& file, const std::string& key);

/// The first line. ConfigError if other users may read or write the file, since the key is then no longer secret. DataError if there is
/// no such file, or no key in it.
std::string read_key(const std::filesystem::path& file);

}  // namespace paceline

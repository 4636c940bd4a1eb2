// A key in a file that only its owner can read.
#pragma once

#include <filesystem>
#include <string>

namespace paceline {

/// Nobody else can read it at any moment, whatever the umask says. Throws DataError.
void write_key(const std::filesystem::path& file, const std::string& key);

/// The first line. ConfigError where others than the owner may read or write the file: then it is no secret any more. DataError where there
/// is none, or no key in it.
std::string read_key(const std::filesystem::path& file);

}  // namespace paceline

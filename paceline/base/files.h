// Files. What is written becomes visible whole or not at all: it is written beside, synced, then renamed over the old one, and the
// folder is synced too. A crash, a kill or a full disk at any moment leaves the old file as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "paceline/base/descriptor.h"

namespace paceline {

/// What a commit has put on the disk.
struct FileStamp {
  std::int64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// A file in the making. Gone without a trace unless committed. A target that is a link stays one: what it names is replaced. Every failure
/// is a DataError with the system's reason; so is a target that is there and no regular file.
class AtomicFile {
 public:
  enum class Readers { everybody, owner };  // as far as the umask lets them
  explicit AtomicFile(std::filesystem::path target, Readers readers = Readers::everybody);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  FileStamp commit();

 private:
  std::filesystem::path target_, beside_;
  FileStamp stamp_;
  Descriptor descriptor_;
};

/// Lets a new name in a folder outlast a loss of power. DataError.
void sync_folder(const std::filesystem::path& folder);

FileStamp write_atomically(const std::filesystem::path& target, std::string_view content);

/// The whole of a file. Throws DataError.
std::string read_file(const std::filesystem::path& file);

/// Makes the folder and those above it where they are missing and tries to write in it. Throws ConfigError that says why it cannot.
void ensure_writable_folder(const std::filesystem::path& folder);

/// A file mapped read-only into memory. Throws DataError. The file must not be cut while it is mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace paceline

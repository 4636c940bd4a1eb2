// Files. A write is atomic: it goes to a temporary file in the same folder, which is synced and renamed over the old one; then the
// folder is synced too. After a crash, a kill or a full disk at any moment, the old file is as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "paceline/base/descriptor.h"

namespace paceline {

/// What a commit has written.
struct FileStamp {
  std::int64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// A file that is being written, and that is removed unless it is committed. If the target is a link, the file that it points to is
/// replaced. Every failure is a DataError with the system's reason; a target that exists and is not a regular file is one too.
class AtomicFile {
 public:
  enum class Readers { everybody, owner };  // as far as the umask permits
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

/// Syncs a folder, so that a new name in it survives a power failure. Throws DataError.
void sync_folder(const std::filesystem::path& folder);

FileStamp write_atomically(const std::filesystem::path& target, std::string_view content);

/// The content of a file. Throws DataError.
std::string read_file(const std::filesystem::path& file);

/// Creates the folder and its missing parents, and tries to write in it. Throws ConfigError with the reason if that fails.
void ensure_writable_folder(const std::filesystem::path& folder);

/// A file mapped read-only into memory. Throws DataError. The file must not be truncated while it is mapped.
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

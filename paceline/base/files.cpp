#include "paceline/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::system_category().message(errno); }

[[noreturn]] void fail(const fs::path& file, const char* attempt) {
  throw DataError(file.string(), fmt::format("cannot {}: {}", attempt, reason()));
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

/// The file that a target names, existing or not. Symbolic links are followed: the link stays, and the file that it names is replaced.
/// Throws if the target is not a regular file, because a rename would replace a device or a FIFO by a file.
fs::path file_named(fs::path target) {
  struct stat status {};
  const bool there = ::stat(target.c_str(), &status) == 0;
  if (!there && errno == ELOOP) fail(target, "write");
  if (there && !S_ISREG(status.st_mode)) throw DataError(target.string(), "is not a regular file; write to another name");
  for (std::error_code none; fs::is_symlink(target, none);) target = folder_of(target) / fs::read_symlink(target, none);
  return target;
}

/// A name in the same folder that no other process or thread uses.
fs::path name_beside(const fs::path& file) {
  static std::atomic<unsigned> count{0};
  return folder_of(file) / fmt::format(".{}.{}-{}.part", file.filename().string(), ::getpid(), count++);
}

int open_new(const fs::path& file, AtomicFile::Readers readers) {
  return ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, readers == AtomicFile::Readers::owner ? 0600 : 0666);
}

/// A regular file to read. O_NONBLOCK, because opening a FIFO would wait for a writer.
class Input {
 public:
  explicit Input(const fs::path& file) : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (!descriptor_) fail(file, "open");
    struct stat status {};
    if (::fstat(descriptor(), &status) != 0) fail(file, "look at");
    if (!S_ISREG(status.st_mode)) throw DataError(file.string(), "is not a file");
    size_ = static_cast<std::size_t>(status.st_size);
  }

  int descriptor() const { return descriptor_.get(); }
  std::size_t size() const { return size_; }

 private:
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

}  // namespace

AtomicFile::AtomicFile(fs::path target, Readers readers)
    : target_(file_named(std::move(target))), beside_(name_beside(target_)), descriptor_(open_new(beside_, readers)) {
  if (!descriptor_) fail(target_, "write");
}

AtomicFile::~AtomicFile() {
  if (descriptor_) ::unlink(beside_.c_str());
}

void AtomicFile::write(std::span<const std::byte> data) {
  ensure(bool(descriptor_), "a committed file takes nothing more");
  stamp_.crc32c = crc32c(data, stamp_.crc32c);
  stamp_.bytes += static_cast<std::int64_t>(data.size());
  while (!data.empty()) {
    const ssize_t written = ::write(descriptor_.get(), data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(target_, "write");
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

FileStamp AtomicFile::commit() {
  ensure(bool(descriptor_), "a file is committed once");
  if (::fsync(descriptor_.get()) != 0) fail(target_, "sync");
  if (::rename(beside_.c_str(), target_.c_str()) != 0) fail(target_, "replace");
  descriptor_.reset();
  sync_folder(folder_of(target_));  // the new name is on the disk only once its folder is synced
  return stamp_;
}

void sync_folder(const fs::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: the file system cannot sync folders.
  if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL)) fail(folder, "sync");
}

FileStamp write_atomically(const fs::path& target, std::string_view content) {
  AtomicFile file(target);
  file.write(content);
  return file.commit();
}

std::string read_file(const fs::path& file) {
  const Input input(file);
  std::string content(input.size(), '\0');
  std::size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(input.descriptor(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(file, "read");
    if (got == 0) throw DataError(file.string(), fmt::format("ended after {} of {} bytes while it was read", filled, content.size()));
    filled += static_cast<std::size_t>(got);
  }
  return content;
}

void ensure_writable_folder(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) throw ConfigError(fmt::format("cannot create the folder {}: {}; choose another place", folder.string(), code.message()));
  if (!fs::is_directory(folder, code)) throw ConfigError(fmt::format("{} is a file, not a folder; choose another place", folder.string()));
  // The only reliable check is to try: permissions, read-only mounts and quotas may each forbid it.
  const fs::path probe = name_beside(folder / "probe");
  const int descriptor = open_new(probe, AtomicFile::Readers::everybody);
  if (descriptor < 0)
    throw ConfigError(
        fmt::format("cannot write in the folder {}: {}; choose another place or change its permissions", folder.string(), reason()));
  ::close(descriptor);
  ::unlink(probe.c_str());
}

MappedFile::MappedFile(const fs::path& file) {
  const Input input(file);
  if (input.size() == 0) return;  // an empty file cannot be mapped
  void* start = ::mmap(nullptr, input.size(), PROT_READ, MAP_PRIVATE, input.descriptor(), 0);
  if (start == MAP_FAILED) fail(file, "map");
  bytes_ = {static_cast<const std::byte*>(start), input.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace paceline

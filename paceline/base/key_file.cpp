#include "paceline/base/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "paceline/base/descriptor.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"

namespace paceline {
namespace {

constexpr std::size_t kLongestKey = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

void write_key(const std::filesystem::path& file, const std::string& key) {
  AtomicFile atomic(file, AtomicFile::Readers::owner);
  atomic.write(key + "\n");
  atomic.commit();
}

std::string read_key(const std::filesystem::path& file) {
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!descriptor || ::fstat(descriptor.get(), &status) != 0)
    throw DataError(file.string(), fmt::format("cannot read the key: {}", std::system_category().message(errno)));
  if (!S_ISREG(status.st_mode)) throw DataError(file.string(), "is not a file");
  if ((status.st_mode & kOthers) != 0)
    throw ConfigError(
        fmt::format("{}: users other than its owner can read this key file (mode {:o}); chmod 600 it, and make a new key if anyone else "
                    "may have read it",
                    file.string(), status.st_mode & 0777));
  std::string text(kLongestKey + 1, '\0');
  const ssize_t got = ::read(descriptor.get(), text.data(), text.size());
  if (got < 0) throw DataError(file.string(), fmt::format("cannot read the key: {}", std::system_category().message(errno)));
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > kLongestKey) throw DataError(file.string(), fmt::format("is longer than a key of {} bytes", kLongestKey));
  const std::string key(trimmed(text.substr(0, text.find('\n'))));
  if (key.empty()) throw DataError(file.string(), "has no key in its first line");
  return key;
}

}  // namespace paceline

#include "paceline/base/entropy.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

namespace paceline {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
    throw std::system_error(errno, std::system_category(), "getrandom");
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace paceline

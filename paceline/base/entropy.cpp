#include "paceline/base/entropy.h"

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

}  // namespace paceline

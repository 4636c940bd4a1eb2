#include "paceline/base/host.h"

#include <unistd.h>

namespace paceline {

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

bool names_loopback(const std::string& address) { return address == "localhost" || address.starts_with("127.") || address == "::1"; }

}  // namespace paceline

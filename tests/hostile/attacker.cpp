// attacker ATTACK tcp:HOST:PORT|unix:NAME store|servers|servers_tls [KEY] [COUNT] [SECONDS]: one attack, on this host alone; prints its
// facts as JSON.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <exception>

#include "paceline/base/error.h"
#include "tests/hostile/attack.h"

namespace paceline::hostile {
namespace {

comm::SocketAddress address_of(const std::string& text) {
  if (text.starts_with("unix:")) return comm::abstract_address(text.substr(5));
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with("tcp:") || colon <= 4) throw ConfigError(fmt::format("'{}' is neither tcp:HOST:PORT nor unix:NAME", text));
  const comm::SocketAddress address = comm::tcp_address(text.substr(4, colon - 4), std::stoi(text.substr(colon + 1)));
  if (!address.is_loopback()) throw ConfigError(fmt::format("{} is not on this host; attacks stay on it", address.name));
  return address;
}

const Attack& find_attack(const std::string& name) {
  for (const auto& attacks : {connection_attacks(), store_attacks(), server_attacks()})
    for (const Attack& attack : attacks)
      if (attack.name == name) return attack;
  throw ConfigError(fmt::format("there is no attack '{}'", name));
}

void print_usage() {
  fmt::print("attacker ATTACK tcp:HOST:PORT|unix:NAME store|servers|servers_tls [KEY] [COUNT] [SECONDS]\n");
  for (const auto& attacks : {connection_attacks(), store_attacks(), server_attacks()})
    for (const Attack& attack : attacks) fmt::print("  {:<20} {}\n", attack.name, attack.help);
}

/// A thousand connections need a thousand descriptors.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int main(const std::vector<std::string>& words) {
  if (words.size() < 3) return print_usage(), 2;
  Target target{.address = address_of(words[1]), .key = words.size() > 3 ? words[3] : ""};
  target.purpose = words[2] == "servers" ? comm::kForServers : words[2] == "servers_tls" ? comm::kForServersOverTls : comm::kForStore;
  if (words.size() > 4) target.count = std::stoi(words[4]);
  if (words.size() > 5) target.time = std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(std::stod(words[5])));
  allow_descriptors();
  const Nanoseconds start = now();
  Facts facts = find_attack(words[0]).run(target);
  facts["took"] = seconds_since(start);
  fmt::print("{}\n", facts.dump());
  return 0;
}

}  // namespace
}  // namespace paceline::hostile

#if defined(__SANITIZE_THREAD__)  // gRPC was not built for it, and would seem to be full of races
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

int main(int count, char** words) {
  try {
    return paceline::hostile::main(std::vector<std::string>(words + 1, words + count));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

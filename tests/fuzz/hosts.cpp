// Hosts, as -H and as a hostfile, and the other words of `paceline run` that count ranks; and the placement that is made from them.
#include "paceline/launch/places.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

namespace {

void plan(std::vector<launch::Host> hosts) {
  std::int64_t slots = 0;
  for (const launch::Host& host : hosts) slots += host.slots;
  const launch::Placement made =
      launch::place_ranks({.hosts = std::move(hosts)}, {.cores = 2, .is_here = [](const std::string&) { return true; }});
  fuzz::require(made.size == slots && std::ssize(made.places) == slots, "every slot has a rank");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  const fuzz::InputFile input(text);
  fuzz::parse([&] { plan(launch::parse_hosts(text)); });
  fuzz::parse([&] { plan(launch::read_hostfile(input.path())); });
  fuzz::parse([&] { fuzz::require(launch::parse_per_node(text, {.cores = 2, .is_here = {}}) >= 1, "a host has a rank"); });
  return fuzz::parse([&] { fuzz::require(launch::parse_nodes(text) >= 1, "there is a host"); });
}

// A worker's requests at a server's desk, one after the other: for each a byte for the length of the head, the head, and its payload.
#include "paceline/ps/transports/desk.h"

#include <algorithm>

#include "paceline/ps/concurrent_server.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ps::ArenaLayout layout{.entries = {{"weight", {2, 3}, 0, 6}, {"bias", {2}, 16, 2, false}}, .length = 32, .statistics = 4};
  fuzz::Pieces pieces(data, size);
  ps::ServiceOptions options{.end = layout.length};
  const auto choice = pieces.value<std::uint8_t>();
  if (choice % 2 == 1) options.compression.name = "int8";
  options.next_task = [](int, bool, bool& finished) { return finished = true, std::nullopt; };
  ps::PsConfig config;
  config.rule = choice < 128 ? "asgd" : "lc_asgd", config.hidden = 2;
  ps::Server::Setup setup;
  setup.segments = ps::segments_of(layout), setup.length = setup.end = layout.length, setup.statistics = layout.statistics;
  const SteadyClock clock;
  ps::ConcurrentServer concurrent(std::make_unique<ps::Server>(config, optim::OptimConfig{}, setup), {.wait = Nanoseconds(0)}, clock);
  concurrent.join(0);
  ps::Desk desk(concurrent, layout, options, 0);
  return fuzz::parse([&] {
    while (!pieces.empty()) {
      const std::string_view head = pieces.bytes(pieces.value<std::uint8_t>());
      const std::span<std::byte> room = desk.room_for(head);
      const std::string_view payload = pieces.bytes(room.size());
      std::ranges::copy(std::as_bytes(std::span(payload)), room.begin());
      desk.answer(head);
    }
  });
}

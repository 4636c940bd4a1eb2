// A server's journal. The first byte chooses the server; where it is odd, the rest is the file as it stands, else a list of events, which
// are written down with their checksums, because no mutation would find those.
#include "paceline/ps/journal.h"

#include <array>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace paceline;

namespace {

constexpr std::int64_t kLength = 8, kStatistics = 2;

std::unique_ptr<ps::Server> server_of(unsigned choice) {
  constexpr std::array<std::array<const char*, 2>, 6> kKinds = {
      {{"asgd", "asp"}, {"dc_asgd", "ssp"}, {"lc_asgd", "asp"}, {"easgd", "asp"}, {"average", "bsp"}, {"dana", "adasync"}}};
  ps::PsConfig config;
  config.rule = kKinds[choice % kKinds.size()][0], config.consistency = kKinds[choice % kKinds.size()][1];
  config.hidden = 2;
  ps::Server::Setup setup;
  setup.segments = {{0, 5}, {5, 3, false}}, setup.length = setup.end = kLength, setup.statistics = kStatistics, setup.workers = 2;
  return std::make_unique<ps::Server>(config, optim::OptimConfig{}, setup);
}

void write_events(fuzz::Pieces& pieces, const std::filesystem::path& file) {
  ps::Journal journal(file, 0);
  while (!pieces.empty()) {
    const auto kind = static_cast<ps::Journal::Kind>(pieces.value<std::int8_t>());
    const auto small = pieces.value<std::int8_t>();
    const std::int64_t worker = small == 127 ? pieces.value<std::int64_t>() : small;
    const auto counted = pieces.value<std::uint8_t>();
    std::vector<float> values(counted < 250 ? counted % 16 : static_cast<std::size_t>(kLength));
    for (float& value : values) value = pieces.value<float>();
    journal.note(kind, worker, pieces.value<ps::Push>(), pieces.value<ps::Report>(), values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Pieces pieces(data, size);
  const auto choice = pieces.value<std::uint8_t>();
  const bool as_it_stands = choice % 2 == 1;
  const fuzz::InputFile input(as_it_stands ? pieces.bytes(size) : "");
  if (!as_it_stands) write_events(pieces, input.path());
  return fuzz::parse([&] {
    const auto server = server_of(choice / 2);
    const ps::Journal::Replayed replayed = ps::Journal::replay(input.path(), *server);
    fuzz::require(replayed.pushes <= replayed.events, "a push is an event");
  });
}

// What a checkpoint says of a parameter server: its numbers, and the state of its predictors. A byte chooses the server, another says how
// many numbers follow; what comes after them changes a good state of the predictors, which is long: place and value, again and again.
#include <array>
#include <vector>

#include "paceline/ps/server.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array<std::array<const char*, 2>, 5> kKinds = {
      {{"asgd", "asp"}, {"lc_asgd", "asp"}, {"asgd", "ssp"}, {"average", "adasync"}, {"average", "bsp"}}};
  constexpr std::int64_t kLength = 8;
  fuzz::Pieces pieces(data, size);
  const auto choice = pieces.value<std::uint8_t>();
  ps::PsConfig config;
  config.rule = kKinds[choice % kKinds.size()][0], config.consistency = kKinds[choice % kKinds.size()][1];
  config.hidden = 2;
  ps::Server::Setup setup;
  setup.segments = {{0, kLength}}, setup.length = setup.end = kLength, setup.workers = 2;
  ps::Server server(config, optim::OptimConfig{}, setup);

  std::vector<std::int64_t> numbers(pieces.value<std::uint8_t>());
  for (std::int64_t& number : numbers) number = pieces.value<std::int64_t>();
  std::vector<ps::UpdateRule::State> rule_state = server.rule_state();
  std::vector<float> none, &predictors = rule_state.empty() ? none : rule_state[0].values;
  if (choice % 128 >= 64) predictors.resize(pieces.value<std::uint16_t>());
  while (!pieces.empty() && !predictors.empty()) {
    const auto place = pieces.value<std::uint16_t>();
    predictors[place % predictors.size()] = pieces.value<float>();
  }
  const auto before = server.numbers();
  try {
    server.load(numbers, rule_state, choice >= 128 ? ps::Server::InProgress::present : ps::Server::InProgress::missing);
  } catch (const ConfigError&) {
    fuzz::require(server.numbers() == before, "what is refused changes nothing");
    return 0;
  }
  // The server must work in whatever state it accepted.
  std::array<float, kLength> values{};
  for (const int worker : {0, 1}) {
    server.left(worker);
    server.joined(worker);
    server.report(worker, {.loss = 1, .t_comm_s = 1, .t_comp_s = 1}, nullptr);
    if (server.may_pull(worker)) server.pull(worker, values.data(), 0.1f);
    server.push(worker, values.data(), {.rate = 0.1f});
  }
  return 0;
}

// The file of a recorded run.
#include "paceline/ps/timing_trace.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::InputFile input(data, size);
  ps::TimingConfig config;
  config.trace = input.path().string();
  fuzz::parse([&] { ps::replayed(config, 2)->draw(1, 1'000'000, 1); });
  return fuzz::parse([&] { fuzz::require(ps::recorded_visits(config, 2).size() == 2, "every worker has visits"); });
}

// Profiles: what is read is written as a file that reads back to the same profile.
#include "paceline/perf/profile.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perf::Profile profile;
  bool taken = false;
  fuzz::parse([&] {
    profile = perf::read_profile(std::string(fuzz::text_of(data, size)), "profile.json");
    taken = true;
  });
  if (taken) fuzz::require(perf::read_profile(perf::to_json(profile), "the written file") == profile, "a written profile reads back");
  return 0;
}

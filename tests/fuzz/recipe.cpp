// Recipes: TOML, or, behind a first line "=", assignments section.key=value, a line each. All sections that need no LibTorch are bound.
#include "paceline/base/config.h"
#include "paceline/base/text.h"
#include "paceline/compress/compressor.h"
#include "paceline/data/dataset.h"
#include "paceline/graph/registry.h"
#include "paceline/optim/optimizer.h"
#include "paceline/optim/rate_schedule.h"
#include "paceline/ps/config.h"
#include "paceline/ps/timing.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

namespace {

struct Sections {
  graph::ModelConfig model;
  data::DataConfig data;
  optim::OptimConfig optim;
  optim::ScheduleConfig schedule;
  compress::CompressConfig compress;
  ps::PsConfig ps;
  ps::TimingConfig timing;

  Config config() {
    Config all;
    all.bind("model", "", model);
    all.bind("data", "", data);
    all.bind("optim", "", optim);
    all.bind("schedule", "", schedule);
    all.bind("compress", "", compress);
    all.bind("ps", "", ps);
    all.bind("timing", "", timing);
    return all;
  }
};

void read(std::string_view text, Config& config) {
  if (!text.starts_with("=\n")) return config.load_text(std::string(text), "recipe.toml");
  for (const std::string& line : split(text.substr(2), '\n'))
    if (is_assignment(line)) config.set(line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Sections sections;
  Config config = sections.config();
  bool taken = false;
  fuzz::parse([&] {
    read(fuzz::text_of(data, size), config);
    taken = true;
  });
  if (!taken) return 0;
  config.check();
  Sections twin;
  Config again = twin.config();
  again.load_text(config.toml(), "the resolved recipe");
  fuzz::require(again.toml() == config.toml(), "a resolved recipe is read again as what it was");
  return 0;
}

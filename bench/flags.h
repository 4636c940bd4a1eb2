// The command line of `paceline bench`, which `paceline` reads for its help and completions, and paceline-bench to measure.
#pragma once

#include <memory>
#include <string>

#include "bench/benchmark.h"
#include "paceline/program/command_line.h"

namespace paceline::bench {

struct Flags {
  std::string name, svg;
  Options options;
  bool no_peer = false, json = false;
};

std::shared_ptr<Flags> add_flags(CLI::App& app);

}  // namespace paceline::bench

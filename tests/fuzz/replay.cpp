// Gives every committed seed to its fuzz target, so that what fuzzing has found stays found where there is no libFuzzer.
//
//   fuzz_replay SEEDS      one folder per parser; prints each file before it is parsed, so that the last line names the one that crashed
#include <algorithm>
#include <cstdio>
#include <vector>

#include "paceline/base/files.h"
#include "tests/fuzz/fuzz.h"

#define PARSER(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
#include <parsers.inc>
#undef PARSER

namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(const std::uint8_t*, std::size_t);
};

constexpr Target kTargets[] = {
#define PARSER(name) {#name, fuzz_##name},
#include <parsers.inc>
#undef PARSER
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

int replay(const Target& target, const fs::path& folder) {
  int failed = 0;
  for (const fs::path& file : files_in(folder)) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    try {
      const std::string content = paceline::read_file(file);
      target.run(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    } catch (const std::exception& error) {
      std::printf("  failed: %s\n", error.what());
      ++failed;
    }
  }
  return failed;
}

}  // namespace

int main(int count, char** words) try {
  if (count != 2) return std::fprintf(stderr, "usage: fuzz_replay SEEDS\n"), 2;
  int failed = 0;
  for (const Target& target : kTargets) failed += replay(target, fs::path(words[1]) / target.name);
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "fuzz_replay: %s\n", error.what()), 1;
}

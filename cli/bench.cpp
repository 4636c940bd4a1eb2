// paceline bench NAME: passes its flags on to paceline-bench, which contains the benchmarks.
#include "bench/flags.h"
#include "bench/helpers.h"
#include "bench/names.h"
#include "command.h"
#include "paceline/base/error.h"

namespace paceline::cli {
namespace {

/// The command's flags and arguments as they were given, one string each.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : "--" + option->get_lnames().front();
    if (option->count() > 0 && option->get_items_expected_max() == 0) words.push_back(name);
    else
      for (const std::string& value : option->results()) words.push_back(name.empty() ? value : name + "=" + value);
  }
  return words;
}

}  // namespace

Action add_bench(CLI::App& app) {
  const auto flags = bench::add_flags(app);
  return [flags, &app]() -> int {
    find(std::span<const Entry<std::nullptr_t>>(bench::kNames), "benchmark", flags->name);
    const std::string program = bench::helper(bench::kBenchProgram);
    std::vector<std::string> words = words_of(app);
    std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    bench::become(program, arguments.data());
  };
}

}  // namespace paceline::cli

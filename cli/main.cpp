// paceline: becomes the program that contains the subcommand. Has no LibTorch itself, so that it starts at once.
#include <algorithm>

#include "bench/helpers.h"
#include "commands.h"
#include "paceline/base/error.h"
#include "paceline/base/run_program.h"

namespace {

using namespace paceline;

[[noreturn]] void start(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  const cli::Command* command = std::ranges::find(cli::kCommands, word, &cli::Command::name);
  // Whatever is no command (flags, mistakes, nothing) is answered by the program that is always there.
  const char* program = command != std::end(cli::kCommands) ? command->program : cli::kTrainingProgram;
  std::string file;
  if (command != std::end(cli::kCommands) && command->better_with_tools) file = bench::helper_if_any(cli::kToolsProgram);
  if (file.empty()) file = bench::helper_if_any(program);
  if (file.empty()) throw ConfigError(cli::not_built(word));
  bench::become(file, argv);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&]() -> int { start(argc, argv); });
}

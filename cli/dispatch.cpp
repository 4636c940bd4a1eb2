// dispatch(): reads the flags, runs one subcommand, turns errors into one line and an exit code.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "bench/helpers.h"
#include "command.h"
#include "paceline/base/error.h"
#include "paceline/version.h"

namespace paceline::cli {
namespace {

int run(int argc, char** argv, std::span<const Contained> commands) {
  CLI::App app("Paceline trains deep networks on many workers, from C++, on LibTorch.", "paceline");
  use_plain_help(app);
  app.set_version_flag("--version", std::string("paceline ") + PACELINE_VERSION, "print the version and exit");
  app.require_subcommand(1);
  add_examples(app, {"paceline train                                   the built-in demonstration",
                     "paceline train recipes/mnist_lenet5.toml data.root=DIR", "paceline graph resnet50", "paceline help COMMAND"});
  std::map<const CLI::App*, Action> actions;
  const bool tools = !bench::helper_if_any(kToolsProgram).empty();
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.help));
    if (const auto found = std::ranges::find(commands, command.name, &Contained::name); found != commands.end()) {
      actions[sub] = found->add(*sub);
      continue;
    }
    sub->set_help_flag();  // without it and with all words behind it accepted, whoever names this command reads where it is
    sub->prefix_command();
    if (!tools) sub->group("Not built yet; `make program` builds them");
    actions[sub] = [&command]() -> int { throw ConfigError(not_built(command.name)); };
  }
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    spell_out(app, words);
    std::reverse(words.begin(), words.end());  // CLI11 expects them in reverse
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    if (argc == 1) {
      std::cerr << app.help();
      return kWrongInput;
    }
    throw ConfigError(parse_problem(error, app));
  }
  return actions.at(app.get_subcommands().front())();
}

// Runs before the libraries' constructors: with too little memory, OpenBLAS's would wait forever and LibTorch's would abort. No other code
// has run yet, so this uses nothing but system calls.
void refuse_small_address_space() {
  constexpr unsigned long kNeeded = 160ul << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  char text[64] = {};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::read(file, text, sizeof(text) - 1) <= 0) return;
  ::close(file);
  unsigned long pages = 0;
  for (const char* digit = text; *digit >= '0' && *digit <= '9'; ++digit) pages = pages * 10 + static_cast<unsigned long>(*digit - '0');
  if (pages * static_cast<unsigned long>(::sysconf(_SC_PAGESIZE)) + kNeeded <= limit.rlim_cur) return;
  constexpr char kLine[] = "error: ulimit -v leaves too little memory to load the libraries; raise it\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  ::_exit(kFailed);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)() = refuse_small_address_space;

}  // namespace

int dispatch(int argc, char** argv, std::span<const Contained> commands) {
  return run_program([&] {
    const int code = run(argc, argv, commands);
    if (std::cout.flush()) return code;
    if (code != kDone) return code;
    throw Error("cannot write to standard output; check whether it is closed or the disk is full");
  });
}

}  // namespace paceline::cli

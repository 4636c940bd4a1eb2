// paceline: the command line. Reads the flags, runs one subcommand, turns errors into one line and an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/run_program.h"
#include "paceline/version.h"

namespace {

using namespace paceline;

struct Row {
  const char* name;
  const char* help;
  cli::Action (*add)(CLI::App&);
};

constexpr Row kCommands[] = {
    {"train", "train a network", cli::add_train},
    {"run", "start a program as several ranks, on this host and others", cli::add_run},
    {"compare", "train with several algorithms, worker counts and seeds, and report the results", cli::add_compare},
    {"scale", "measure how training speeds up with more workers", cli::add_scale},
    {"graph", "print a network's layers, parameters and cost", cli::add_graph},
    {"memory", "show where the memory of a run goes, by formulas and measured", cli::add_memory},
    {"algorithm", "print a collective algorithm's steps and cost, and draw it", cli::add_algorithm},
    {"simulate", "replay a job's steps on a cluster: stragglers, shared links, failures", cli::add_simulate},
    {"plan", "find the fastest way to train on a cluster: parallelism, ZeRO, micro-batches, compression", cli::add_plan},
    {"study", "recompute a published scalability study, with figures", cli::add_study},
    {"probe", "measure this machine, or the ranks of a job, and write a cluster file", cli::add_probe},
    {"profile", "measure the time of a network's layers on this device, by batch size", cli::add_profile},
    {"verify", "compare the predicted step times of runs with the measured ones", cli::add_verify},
    {"evaluate", "measure the loss and accuracy of a trained network", cli::add_evaluate},
    {"predict", "classify images with a trained network", cli::add_predict},
    {"sample", "continue a text with a trained network", cli::add_sample},
    {"tokenize", "encode text as token files, for the dataset 'tokens'", cli::add_tokenize},
    {"list", "list networks, datasets, optimizers and everything else a recipe can name", cli::add_list},
    {"doctor", "check this machine: versions, BLAS, devices", cli::add_doctor},
    {"bench", "measure Paceline against its peers on this machine", cli::add_bench},
    {"checkpoint", "show, verify and convert checkpoints", cli::add_checkpoint},
    {"completions", "print completions for a shell: bash, zsh or fish", cli::add_completions},
    {"help", "show the help of a command, or its man page", cli::add_help},
};

int run(int argc, char** argv) {
  CLI::App app("Paceline trains deep networks on many workers, from C++, on LibTorch.", "paceline");
  app.set_version_flag("--version", std::string("paceline ") + PACELINE_VERSION);
  app.require_subcommand(1);
  cli::add_examples(app, {"paceline train                                   the built-in demonstration",
                          "paceline train recipes/mnist_lenet5.toml data.root=DIR", "paceline graph resnet50", "paceline help COMMAND"});
  std::map<const CLI::App*, cli::Action> actions;
  for (const Row& row : kCommands) {
    CLI::App* sub = app.add_subcommand(row.name, row.help);
    actions[sub] = row.add(*sub);
  }
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    cli::spell_out(app, words);
    std::reverse(words.begin(), words.end());  // CLI11 expects them in reverse
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    if (argc == 1) {
      std::cerr << app.help();
      return kWrongInput;
    }
    throw ConfigError(cli::parse_problem(error, app));
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

int main(int argc, char** argv) {
  return run_program([&] {
    const int code = run(argc, argv);
    if (std::cout.flush()) return code;
    if (code != kDone) return code;
    throw Error("cannot write to standard output; check whether it is closed or the disk is full");
  });
}

// All subcommands, in the order of the help, and the programs that contain them. `make train` builds only the first of these programs,
// since most of what the other contains takes long to compile and is needed by few.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace paceline::cli {

inline constexpr const char* kTrainingProgram = "paceline-train";
inline constexpr const char* kToolsProgram = "paceline-tools";

struct Command {
  std::string_view name, help;
  const char* program = kToolsProgram;
  bool better_with_tools = false;  // paceline-tools is taken where it has been built, because it knows more commands
};

inline constexpr Command kCommands[] = {
    {"train", "train a network", kTrainingProgram},
    {"run", "start a program as several ranks, on this host and others", kTrainingProgram},
    {"compare", "train with several algorithms, worker counts and seeds, and report the results"},
    {"scale", "measure how training speeds up with more workers"},
    {"graph", "print a network's layers, parameters and cost"},
    {"memory", "show where the memory of a run goes, by formulas and measured"},
    {"algorithm", "print a collective algorithm's steps and cost, and draw it"},
    {"simulate", "replay a job's steps on a cluster: stragglers, shared links, failures"},
    {"plan", "find the fastest way to train on a cluster: parallelism, ZeRO, micro-batches, compression"},
    {"study", "recompute a published scalability study, with figures"},
    {"probe", "measure this machine, or the ranks of a job, and write a cluster file"},
    {"profile", "measure the time of a network's layers on this device, by batch size"},
    {"verify", "compare the predicted step times of runs with the measured ones"},
    {"evaluate", "measure the loss and accuracy of a trained network"},
    {"predict", "classify images with a trained network"},
    {"sample", "continue a text with a trained network"},
    {"tokenize", "encode text as token files, for the dataset 'tokens'"},
    {"list", "list networks, datasets, optimizers and everything else a recipe can name", kTrainingProgram},
    {"doctor", "check this machine: versions, BLAS, devices"},
    {"bench", "measure Paceline against its peers on this machine"},
    {"checkpoint", "show, verify and convert checkpoints", kTrainingProgram},
    {"completions", "print completions for a shell: bash, zsh or fish"},
    {"help", "show the help of a command, or its man page", kTrainingProgram, true},
};

/// The refusal of a command whose program is not there.
inline std::string not_built(std::string_view command) {
  return "`paceline " + std::string(command) + "` is in the program " + kToolsProgram +
         ", which has not been built; build it with `make program`";
}

using Action = std::function<int()>;

Action add_train(CLI::App& app);
Action add_run(CLI::App& app);
Action add_scale(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_memory(CLI::App& app);
Action add_algorithm(CLI::App& app);
Action add_study(CLI::App& app);
Action add_probe(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_profile(CLI::App& app);
Action add_verify(CLI::App& app);
Action add_simulate(CLI::App& app);
Action add_tokenize(CLI::App& app);
Action add_evaluate(CLI::App& app);
Action add_predict(CLI::App& app);
Action add_sample(CLI::App& app);
Action add_list(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_checkpoint(CLI::App& app);
Action add_completions(CLI::App& app);
Action add_help(CLI::App& app);

struct Contained {
  std::string_view name;
  Action (*add)(CLI::App& app);
};

/// The main() of a program that contains these commands. Its help also names the others.
int dispatch(int argc, char** argv, std::span<const Contained> commands);

}  // namespace paceline::cli

// paceline-tools: all subcommands. Those that paceline-train contains too are here for the help, the man pages and the completions.
#include "commands.h"

int main(int argc, char** argv) {
  using namespace paceline::cli;
  static constexpr Contained kContained[] = {
      {"train", add_train},
      {"run", add_run},
      {"compare", add_compare},
      {"scale", add_scale},
      {"graph", add_graph},
      {"memory", add_memory},
      {"algorithm", add_algorithm},
      {"simulate", add_simulate},
      {"plan", add_plan},
      {"study", add_study},
      {"probe", add_probe},
      {"profile", add_profile},
      {"verify", add_verify},
      {"evaluate", add_evaluate},
      {"predict", add_predict},
      {"sample", add_sample},
      {"tokenize", add_tokenize},
      {"list", add_list},
      {"doctor", add_doctor},
      {"bench", add_bench},
      {"checkpoint", add_checkpoint},
      {"completions", add_completions},
      {"help", add_help},
  };
  return dispatch(argc, argv, kContained);
}

// paceline-train: the subcommands that one needs to train, and their help.
#include "commands.h"

int main(int argc, char** argv) {
  using namespace paceline::cli;
  static constexpr Contained kContained[] = {
      {"train", add_train}, {"run", add_run}, {"list", add_list}, {"checkpoint", add_checkpoint}, {"help", add_help},
  };
  return dispatch(argc, argv, kContained);
}

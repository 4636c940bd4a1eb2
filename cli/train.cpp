// paceline train [RECIPE] [section.key=value …]
#include "command.h"
#include "paceline/program/train_command.h"

namespace paceline::cli {

Action add_train(CLI::App& app) {
  add_examples(
      app, {"paceline train                                               the built-in demonstration",
            "paceline train recipes/mnist_lenet5.toml data.root=DIR",
            "paceline train model.network=resnet18 data.name=cifar10 data.root=DIR optim.rate=0.05",
            "paceline train recipes/text_gpt.toml data.root=book.txt --mesh data=2,pipeline=2",
            "paceline train --resume runs/lenet5-shapes-20300101-120000", "paceline train recipes/text_gpt.toml --json > result.json", "",
            "`paceline list` names networks, datasets, optimizers and schedules; docs/recipes.md lists every key."});
  return program::add_train(app, "paceline train");
}

}  // namespace paceline::cli

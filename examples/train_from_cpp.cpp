// A whole training run from C++: the recipe as a struct, a listener for what one wants to see, and the Trainer that `paceline train` uses.
#include <iostream>

#include "paceline/train.h"

namespace {

struct PrintEpochs final : paceline::observe::Listener {
  void on(const paceline::observe::Event& event) override {
    if (const auto* epoch = std::get_if<paceline::observe::EpochDone>(&event))
      std::cout << "epoch " << epoch->epoch << ": train loss " << epoch->train_loss << '\n';
  }
};

int train() {
  paceline::train::Recipe recipe;
  recipe.model.network = "lenet5";
  recipe.data.name = "shapes";  // drawn images, no file
  recipe.data.train_samples = 4000;
  recipe.data.test_samples = 1000;
  recipe.optim.name = "adamw";
  recipe.optim.rate = 3e-3;
  recipe.config().set("train.epochs=3");  // a key in the words of the command line

  const paceline::SteadyClock clock;
  const std::atomic<bool> stop = false;  // set it from a signal or another thread: checkpoint, then leave
  paceline::observe::Bus bus;
  bus.add(std::make_unique<PrintEpochs>());

  paceline::train::Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop});
  const auto folder = paceline::observe::RunFolder::create("runs", "train_from_cpp");  // now that the recipe is accepted
  const paceline::observe::RunEnded ended = trainer.run(folder.path());
  std::cout << "test accuracy " << 100 * ended.test_accuracy << "%, state " << ended.state_hash << ", everything in " << ended.run << '\n';
  return paceline::kDone;
}

}  // namespace

int main() { return paceline::run_program(train); }  // an error is one line and an exit code

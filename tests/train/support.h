// Small runs for the tests of the trainer: a folder of their own, recipes that take milliseconds, and a way to stop one at any step.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/trainer.h"
#include "tests/message_of.h"

namespace paceline::train {

using Folder = TemporaryFolder;

inline constexpr std::int64_t kStepsPerEpoch = 6, kEpochs = 3;

/// A perceptron on small drawn shapes: kEpochs × kStepsPerEpoch steps.
inline Recipe tiny_recipe() {
  Recipe recipe;
  recipe.model.network = "mlp";
  recipe.model.hidden = {16};
  recipe.data.name = "shapes";
  recipe.data.shape = {1, 8, 8};
  recipe.data.batch = 16;
  recipe.data.train_samples = 16 * kStepsPerEpoch;
  recipe.data.test_samples = 40;
  recipe.data.threads = 0;
  recipe.optim.rate = 0.05;
  recipe.schedule.name = "cosine";
  recipe.schedule.warmup_epochs = 0.5;
  recipe.train.epochs = kEpochs;
  recipe.train.device = "cpu";
  recipe.train.checkpoint_share = 1;  // at the end of every epoch, however fast the machine is
  recipe.train.threads = 1;
  return recipe;
}

/// Raises a flag once a step is done, as a signal would.
class StopAfter final : public observe::Listener {
 public:
  StopAfter(std::int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void on(const observe::Event& event) override {
    if (const auto* done = std::get_if<observe::StepDone>(&event); done && done->step >= step_) stop_ = true;
  }

 private:
  std::int64_t step_;
  std::atomic<bool>& stop_;
};

/// Calls a function with every event of a kind.
template <class Kind>
class On final : public observe::Listener {
 public:
  explicit On(std::function<void(const Kind&)> call) : call_(std::move(call)) {}
  void on(const observe::Event& event) override {
    if (const auto* wanted = std::get_if<Kind>(&event)) call_(*wanted);
  }

 private:
  std::function<void(const Kind&)> call_;
};

/// A trainer with what it needs around it.
struct Session {
  explicit Session(const Recipe& given) : recipe(given) { trainer.emplace(recipe, surroundings()); }

  Session& stop_after(std::int64_t step) {
    bus.add(std::make_unique<StopAfter>(step, stop));
    return *this;
  }
  Session& resume(const std::filesystem::path& folder) {
    const FoundCheckpoint from = newest_good_checkpoint(folder);
    Trainer::Environment environment = surroundings();
    environment.from = &from;
    trainer.emplace(recipe, environment);
    return *this;
  }
  observe::RunEnded to_end(const std::filesystem::path& folder) { return trainer->run(folder); }
  const at::Tensor& parameters() { return trainer->module().arena().parameters(); }

  Trainer::Environment surroundings() { return {.bus = bus, .clock = clock, .stop = stop}; }

  Recipe recipe;
  observe::Bus bus;
  SteadyClock clock;
  std::atomic<bool> stop = false;
  std::optional<Trainer> trainer;
};

/// Trains a recipe from start to end in a folder of its own.
inline observe::RunEnded train(const Recipe& recipe) {
  const Folder folder;
  return Session(recipe).to_end(folder.path());
}

/// The bytes of a file, to damage some of them.
inline std::string bytes_in(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}
inline void put_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace paceline::train

// paceline evaluate RUN: loss and accuracy of a trained network, on the run's test data or on other data.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "paceline/observe/formatting.h"
#include "trained.h"

namespace paceline::cli {
namespace {

struct EvaluateFlags : TrainedFlags {
  std::string split = "test";
};

int run_evaluate(const EvaluateFlags& flags) {
  train::TrainedRun run = open_trained(flags);
  const data::Split split = flags.split == "train" ? data::Split::train : data::Split::test;
  const std::int64_t samples = run.dataset(split).size();
  const bool text = run.dataset(split).info().tokens;
  catch_signals();
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  train::Evaluation found;
  {
    observe::ElapsedLine line("evaluating");
    found = run.evaluate(split, [&](std::int64_t done) {
      line.say(fmt::format("{} of {}, {} a second", done, observe::plural(samples, "sample"),
                           observe::show_rate(static_cast<double>(done) / seconds())));
      return !stop_requested.load();
    });
  }
  if (stop_requested) throw Error(fmt::format("stopped on request after {} of {} samples", found.samples, samples));
  if (flags.json) {
    nlohmann::ordered_json document = {{"checkpoint", run.checkpoint().string()},
                                       {"network", run.recipe().model.network},
                                       {"step", run.position().step},
                                       {"dataset", run.recipe().data.name},
                                       {"split", flags.split},
                                       {"samples", found.samples},
                                       {"targets", found.targets},
                                       {"loss", found.loss},
                                       {"accuracy", found.accuracy}};
    if (text) document["perplexity"] = std::exp(found.loss);
    document["seconds"] = seconds();
    print_json(document);
    return kDone;
  }
  const auto line = [](const char* name, const std::string& value) { std::cout << fmt::format("  {:<12}{}\n", name, value); };
  std::cout << run.checkpoint().string() << '\n';
  line("network", fmt::format("{}, {} steps", run.recipe().model.network, run.position().step));
  line("data", fmt::format("{}, {} of the {} split", run.recipe().data.name, observe::plural(found.samples, "sample"), flags.split));
  line("loss", observe::show_loss(found.loss));
  if (text) line("perplexity", fmt::format("{:.3f} a token", std::exp(found.loss)));
  line("accuracy", observe::show_percent(found.accuracy, 2));
  return kDone;
}

}  // namespace

Action add_evaluate(CLI::App& app) {
  auto flags = std::make_shared<EvaluateFlags>();
  add_trained_flags(app, *flags);
  app.add_option("SETTINGS", flags->settings, "changes to the run's recipe as section.key=value, for example other data or another device");
  app.add_option("--split", flags->split, "split to evaluate: test, or train (without augmentation)")
      ->check(CLI::IsMember({"test", "train"}))
      ->capture_default_str();
  add_examples(app, {"paceline evaluate runs/demo", "paceline evaluate runs/demo --split train",
                     "paceline evaluate runs/photos data.root=other_photos train.device=cpu --json"});
  return [flags] { return run_evaluate(*flags); };
}

}  // namespace paceline::cli

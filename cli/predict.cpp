// paceline predict RUN FILES…: classifies images with a trained network.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/observe/formatting.h"
#include "trained.h"

namespace paceline::cli {
namespace {

struct PredictFlags : TrainedFlags {
  std::vector<std::string> words;  // images, and settings
  std::int64_t top = 5;
};

int run_predict(PredictFlags flags) {
  std::vector<std::string> files;
  for (const std::string& word : flags.words) (is_assignment(word) ? flags.settings : files).push_back(word);
  if (files.empty()) throw ConfigError("no image is named; use paceline predict RUN a.jpg b.png");
  train::TrainedRun run = open_trained(flags);
  if (run.dataset(data::Split::test).info().tokens)
    throw ConfigError(fmt::format("{} was trained on '{}', which is text; use paceline sample {} --prompt TEXT", run.checkpoint().string(),
                                  run.recipe().model.network, flags.run));
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::size_t widest = 0;
  for (const std::string& file : files) widest = std::max<std::size_t>(widest, static_cast<std::size_t>(observe::columns(file)));
  std::optional<ProgressUntilShown> progress(std::in_place, "classifying", flags.json);
  std::size_t done = 0;
  run.predict(files, flags.top, [&](const std::string& file, const train::Ranking& ranking) {
    progress->say(fmt::format("{} of {}", ++done, observe::plural(std::ssize(files), "image")));
    nlohmann::ordered_json classes = nlohmann::ordered_json::array();
    std::string line = observe::fit(file, static_cast<int>(widest));
    for (const auto& [label, probability] : ranking.classes) {
      classes.push_back({{"class", run.class_name(label)}, {"label", label}, {"probability", probability}});
      line += fmt::format("  {} {}", run.class_name(label), observe::show_percent(probability, 2));
    }
    if (flags.json) rows.push_back({{"file", file}, {"classes", classes}});
    else std::cout << line << std::endl;
  });
  progress.reset();
  if (flags.json) print_json({{"checkpoint", run.checkpoint().string()}, {"network", run.recipe().model.network}, {"predictions", rows}});
  return kDone;
}

}  // namespace

Action add_predict(CLI::App& app) {
  auto flags = std::make_shared<PredictFlags>();
  add_trained_flags(app, *flags);
  app.add_option("FILES", flags->words, "JPEG and PNG files, and changes to the run's recipe as section.key=value")->required();
  app.add_option("--top", flags->top, "classes to show for each image, the most likely first")
      ->check(whole_number(1))
      ->capture_default_str();
  add_examples(app, {"paceline predict runs/photos cat.jpg dog.png", "paceline predict runs/photos *.jpg --top 1 --json"});
  return [flags] { return run_predict(*flags); };
}

}  // namespace paceline::cli

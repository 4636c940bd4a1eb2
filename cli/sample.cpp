// paceline sample RUN --prompt TEXT: continues a text with a trained network.
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/data/tokenizer.h"
#include "paceline/nn/generate.h"
#include "paceline/observe/formatting.h"
#include "trained.h"

namespace paceline::cli {
namespace {

struct SampleFlags : TrainedFlags {
  std::string prompt, vocabulary, merges;
  std::int64_t tokens = 256, top_k = 0, seed = 1;
  double temperature = 1;
};

std::unique_ptr<const data::Tokenizer> tokenizer_for(const SampleFlags& flags, const train::TrainedRun& run) {
  const data::Dataset& dataset = run.dataset(data::Split::train);
  if (!dataset.info().tokens)
    throw ConfigError(fmt::format("{} is of '{}' on '{}', which is no text; use paceline predict {} FILES", run.checkpoint().string(),
                                  run.recipe().model.network, run.recipe().data.name, flags.run));
  if (flags.vocabulary.empty() != flags.merges.empty())
    throw ConfigError("--vocabulary and --merges belong together: the vocab.json and the merges.txt of one tokenizer");
  auto tokenizer = flags.vocabulary.empty() ? dataset.tokenizer() : data::make_gpt2_tokenizer(flags.vocabulary, flags.merges);
  if (!tokenizer)
    throw ConfigError(fmt::format(
        "data.root={} has no tokens.json, which describes the tokenizer; name its files: --vocabulary vocab.json --merges merges.txt",
        run.recipe().data.root));
  if (tokenizer->vocabulary() > dataset.info().classes)
    throw ConfigError(fmt::format(
        "the tokenizer has {} tokens, but the network was trained with {}; name the files of the tokenizer that it was trained with",
        tokenizer->vocabulary(), dataset.info().classes));
  return tokenizer;
}

/// The prompt, or the beginning of a document if there is none.
std::vector<std::int64_t> prompt_tokens(const SampleFlags& flags, const data::Tokenizer& tokenizer) {
  std::vector<std::uint32_t> tokens;
  if (!flags.prompt.empty()) tokenizer.encode(flags.prompt, tokens);
  else if (const auto end = tokenizer.end_of_text()) tokens = {*end};
  else tokenizer.encode("\n", tokens);
  return {tokens.begin(), tokens.end()};
}

int run_sample(const SampleFlags& flags) {
  train::TrainedRun run = open_trained(flags);
  const auto tokenizer = tokenizer_for(flags, run);
  const std::vector<std::int64_t> prompt = prompt_tokens(flags, *tokenizer);
  catch_signals();
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::int64_t> made;
  std::string text;
  std::string before = flags.prompt;  // shown with the first token: until then there may be a progress line
  std::optional<ProgressUntilShown> progress(std::in_place, "generating", flags.json);
  nn::generate(run.network(), tokenizer->vocabulary(), prompt, flags.tokens,
               {.temperature = flags.temperature, .top_k = flags.top_k, .seed = static_cast<std::uint64_t>(flags.seed)},
               [&](std::int64_t token) {
                 if (tokenizer->end_of_text() == token) return false;
                 made.push_back(token);
                 progress->say(fmt::format("{} of {}", made.size(), observe::plural(flags.tokens, "token")));
                 const std::string piece = tokenizer->decode({&made.back(), 1});
                 text += piece;
                 if (!flags.json) std::cout << std::exchange(before, "") << piece << std::flush;
                 return !stop_requested.load();
               });
  progress.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (flags.json)
    print_json({{"checkpoint", run.checkpoint().string()},
                {"prompt", flags.prompt},
                {"text", text},
                {"tokens", made},
                {"seconds", seconds},
                {"tokens_per_s", static_cast<double>(made.size()) / seconds}});
  else std::cout << before << std::endl;
  return stop_requested ? kStopped : kDone;
}

}  // namespace

Action add_sample(CLI::App& app) {
  auto flags = std::make_shared<SampleFlags>();
  add_trained_flags(app, *flags);
  app.add_option("SETTINGS", flags->settings, "changes to the run's recipe as section.key=value, for example another data.root or device");
  app.add_option("--prompt", flags->prompt, "text to continue (default: the beginning of a document)");
  app.add_option("--tokens", flags->tokens, "largest number of tokens to generate")->check(whole_number(1))->capture_default_str();
  app.add_option("--temperature", flags->temperature, "below 1 favours likely tokens, above 1 rare ones; 0: always the most likely one")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", flags->top_k, "choose among the K most likely tokens; 0: among all")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--seed", flags->seed, "seed of the random choices; the same seed gives the same text")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--vocabulary", flags->vocabulary, "GPT-2's vocab.json, if the data has no tokens.json")->type_name(kFile);
  app.add_option("--merges", flags->merges, "GPT-2's merges.txt, which belongs to --vocabulary")->type_name(kFile);
  add_examples(app, {"paceline sample runs/gpt --prompt \"To be\"",
                     "paceline sample runs/gpt --prompt \"To be\" --temperature 0.8 --top-k 40 --seed 7",
                     "paceline sample runs/gpt data.root=input.txt train.device=cpu --json"});
  return [flags] { return run_sample(*flags); };
}

}  // namespace paceline::cli

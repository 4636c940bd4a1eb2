// paceline tokenize FILES… --output FOLDER: text as files of tokens, for the dataset `tokens`.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/data/tokenize.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;

struct TokenizeFlags {
  std::vector<std::string> files;
  std::string output, vocabulary, merges;
  double test_share = 0.1;
  std::int64_t shard_tokens = data::TokenizeOptions{}.shard_tokens;
  int threads = 0;
  bool json = false;
};

int run_tokenize(const TokenizeFlags& flags) {
  if (flags.vocabulary.empty() != flags.merges.empty())
    throw ConfigError("--vocabulary and --merges go together: give both, the vocab.json and the merges.txt of one tokenizer");
  const bool gpt2 = !flags.vocabulary.empty();
  const auto tokenizer = gpt2 ? data::make_gpt2_tokenizer(flags.vocabulary, flags.merges) : data::make_byte_tokenizer();
  const data::TokenizeOptions options{.files = {flags.files.begin(), flags.files.end()},
                                      .folder = flags.output,
                                      .test_share = flags.test_share,
                                      .shard_tokens = flags.shard_tokens,
                                      .threads = flags.threads > 0 ? flags.threads : usable_cores()};
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  data::Tokenized made;
  {
    observe::ElapsedLine line("encoding");
    made = data::tokenize(*tokenizer, gpt2 ? "gpt2" : "bytes", options, [&](std::int64_t done, std::int64_t all) {
      line.say(fmt::format("{:.0f}% of {:.1f} MB, {:.1f} MB/s", 100.0 * static_cast<double>(done) / static_cast<double>(all),
                           static_cast<double>(all) / 1e6, static_cast<double>(done) / 1e6 / seconds()));
    });
  }
  if (gpt2) {  // so that samples can be decoded wherever the folder is moved
    write_atomically(options.folder / data::kVocabularyFile, read_file(flags.vocabulary));
    write_atomically(options.folder / data::kMergesFile, read_file(flags.merges));
  }
  if (flags.json) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const fs::path& file : made.files) files.push_back(file.string());
    print_json({{"folder", flags.output},
                {"encoding", gpt2 ? "gpt2" : "bytes"},
                {"vocabulary", tokenizer->vocabulary()},
                {"bytes", made.bytes},
                {"training_tokens", made.training},
                {"test_tokens", made.test},
                {"seconds", seconds()},
                {"files", files}});
    return kDone;
  }
  std::cout << fmt::format("{} → {}: {} training and {} test tokens of a vocabulary of {} in {}, {:.2f} bytes per token\n",
                           observe::plural(std::ssize(flags.files), "text"), flags.output, made.training, made.test,
                           tokenizer->vocabulary(), observe::plural(std::ssize(made.files), "file"),
                           static_cast<double>(made.bytes) / static_cast<double>(made.training + made.test));
  return kDone;
}

}  // namespace

Action add_tokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  app.add_option("FILES", flags->files, "text files; each is one document")->required();
  app.add_option("--output", flags->output, "folder for train_*.bin, val_*.bin and tokens.json")->type_name(kFolder)->required();
  app.add_option("--vocabulary", flags->vocabulary, "GPT-2's vocab.json; without it every byte is a token")->type_name(kFile);
  app.add_option("--merges", flags->merges, "GPT-2's merges.txt, which belongs to --vocabulary")->type_name(kFile);
  app.add_option("--test-share", flags->test_share, "share of the text for the test set, from its end")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
  app.add_option("--shard-tokens", flags->shard_tokens, "tokens per file at most")
      ->check(whole_number(1, 2'000'000'000))
      ->capture_default_str();
  app.add_option("--threads", flags->threads, "threads that encode; 0: one per core")->check(whole_number(0, 1024));
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline tokenize input.txt --output tokens",
                     "paceline tokenize books/*.txt --output tokens --vocabulary vocab.json --merges merges.txt",
                     "paceline train data.name=tokens data.root=tokens data.context=256 model.network=gpt"});
  return [flags] { return run_tokenize(*flags); };
}

}  // namespace paceline::cli

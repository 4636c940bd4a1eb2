// From text files to a folder of tokens, which the dataset `tokens` reads: train_000000.bin …, val_000000.bin … and tokens.json.
#pragma once

#include <functional>

#include "paceline/data/tokenizer.h"

namespace paceline::data {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;  // one document each; the end-of-text token precedes every one
  std::filesystem::path folder;
  double test_share = 0.1;                  // of the bytes: the last ones
  std::int64_t shard_tokens = 100'000'000;  // at most, per file
  int threads = 1;
};

struct Tokenized {
  std::int64_t bytes = 0, training = 0, test = 0;  // tokens of each
  std::vector<std::filesystem::path> files = {};
};

/// `progress` is called with the bytes that are done. The result does not depend on the number of threads. ConfigError if the folder
/// already has tokens or cannot be written to.
Tokenized tokenize(const Tokenizer& tokenizer, const std::string& encoding, const TokenizeOptions& options,
                   const std::function<void(std::int64_t done, std::int64_t all)>& progress);

/// The first place at or after `at` where a text can be cut in two without changing its tokens: before the end of a line whose last
/// character is visible. The text's end if there is none.
std::size_t place_to_cut(std::string_view text, std::size_t at);

}  // namespace paceline::data

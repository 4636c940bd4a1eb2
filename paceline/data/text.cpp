// text: the characters (bytes) of a file. The first nine tenths are for training, the rest for the test.
//
// A sample is a window of `context` characters, its targets are the characters one position later; windows do not overlap, so an epoch sees
// every character once. With augmentation each window starts up to context−1 characters later, so that no epoch cuts the text at the same
// places.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/base/files.h"
#include "paceline/data/dataset_files.h"
#include "paceline/data/sets.h"
#include "paceline/data/tokenizer.h"
#include "paceline/data/windows.h"

namespace paceline::data {
namespace {

class TextSet final : public WindowSet {
 public:
  TextSet(Info info, std::string vocabulary, std::vector<std::uint8_t> tokens, std::int64_t windows)
      : WindowSet(std::move(info), windows), vocabulary_(std::move(vocabulary)), tokens_(std::move(tokens)) {}

  std::string_view vocabulary() const override { return vocabulary_; }
  std::unique_ptr<const Tokenizer> tokenizer() const override { return make_character_tokenizer(vocabulary_); }

  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override {
    const auto from = tokens_.begin() + place(index * context(), std::ssize(tokens_), random);
    std::copy(from, from + context(), batch.tokens.begin() + slot * context());
    std::copy(from + 1, from + 1 + context(), batch.targets.begin() + slot * context());
  }

 private:
  std::string vocabulary_;
  std::vector<std::uint8_t> tokens_;  // of this split; a byte suffices, since there are at most 256 of them
};

}  // namespace

std::unique_ptr<Dataset> make_text(const DataConfig& config, Split split, std::uint64_t) {
  auto file = find_root(config, "tinyshakespeare/input.txt", "a text file");
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "input.txt";
  const std::string content = read_file(file);
  const auto bytes = bytes_of(content);

  std::array<bool, 256> used{};
  for (std::uint8_t byte : bytes) used[byte] = true;
  std::string vocabulary;
  std::array<std::uint8_t, 256> token_of{};
  for (int byte = 0; byte < 256; ++byte) {
    if (!used[byte]) continue;
    token_of[byte] = static_cast<std::uint8_t>(vocabulary.size());
    vocabulary.push_back(static_cast<char>(byte));
  }

  const auto cut = static_cast<std::ptrdiff_t>(bytes.size() / 10 * 9 + bytes.size() % 10 * 9 / 10);
  const auto begin = split == Split::train ? bytes.begin() : bytes.begin() + cut;
  const auto end = split == Split::train ? bytes.begin() + cut : bytes.end();
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(end - begin));
  std::transform(begin, end, tokens.begin(), [&](std::uint8_t byte) { return token_of[byte]; });

  const std::int64_t windows = (static_cast<std::int64_t>(tokens.size()) - 1) / config.context;
  if (windows < 1)
    throw DataError(file.string(),
                    fmt::format("its {} part has {} characters, but data.context={} needs {}; lower data.context, or use a longer text",
                                split == Split::train ? "training" : "test", tokens.size(), config.context, config.context + 1));
  Info info{.key = config.name,
            .input = {config.context},
            .classes = static_cast<std::int64_t>(vocabulary.size()),
            .tokens = true,
            .mean = {},
            .deviation = {},
            .target = {config.context}};
  return std::make_unique<TextSet>(std::move(info), std::move(vocabulary), std::move(tokens), samples_to_use(config, split, windows));
}

}  // namespace paceline::data

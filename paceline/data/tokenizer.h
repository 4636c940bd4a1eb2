// Converts between text and tokens.
//
// The tokens.json of a folder of tokens says how its text was encoded; next to it are the vocab.json and merges.txt of GPT-2's encoding, so
// that text sampled from a network can be decoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::int64_t vocabulary() const = 0;
  /// The token between documents; nullopt if there is none.
  virtual std::optional<std::uint32_t> end_of_text() const { return std::nullopt; }
  /// Appends the tokens of a text. decode() restores it exactly. ConfigError if the vocabulary lacks one of its bytes.
  virtual void encode(std::string_view text, std::vector<std::uint32_t>& tokens) const = 0;
  /// The text of tokens. The end of text, and tokens that pad the vocabulary, have none.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;
};

/// For the dataset `text`: the token of a byte is its index in the vocabulary, whose bytes ascend.
std::unique_ptr<const Tokenizer> make_character_tokenizer(std::string vocabulary);

/// Every byte is a token, and 256 ends a text.
std::unique_ptr<const Tokenizer> make_byte_tokenizer();

/// GPT-2's byte pair encoding, from the files that come with such models. DataError if the files do not match.
std::unique_ptr<const Tokenizer> make_gpt2_tokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges);

inline constexpr const char *kTokensFile = "tokens.json", *kVocabularyFile = "vocab.json", *kMergesFile = "merges.txt";

/// What a folder's tokens.json says; nullopt if there is none.
struct TokensDescription {
  std::string encoding;  // "bytes" or "gpt2"
  std::int64_t vocabulary = 0;
};
std::optional<TokensDescription> describe_tokens(const std::filesystem::path& folder);
void write_description(const std::filesystem::path& folder, const TokensDescription& description);

/// The tokenizer of a folder of tokens; null if it has no tokens.json.
std::unique_ptr<const Tokenizer> tokenizer_of(const std::filesystem::path& folder);

}  // namespace paceline::data

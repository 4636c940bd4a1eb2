// Between text and tokens.
//
// A folder of tokens says in tokens.json how its text was encoded; beside it lie the vocab.json and merges.txt of GPT-2's encoding, so that
// what is sampled from a network can be read.
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
  /// The token between documents; nothing where there is none.
  virtual std::optional<std::uint32_t> end_of_text() const { return std::nullopt; }
  /// Appends the tokens of a text. decode() gives the text back, to the byte. ConfigError where the vocabulary lacks a byte of it.
  virtual void encode(std::string_view text, std::vector<std::uint32_t>& tokens) const = 0;
  /// What tokens stand for. The end of text, and tokens that pad the vocabulary, stand for nothing.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;
};

/// The bytes of a vocabulary, ascending, each with its place as token: of the dataset `text`.
std::unique_ptr<const Tokenizer> make_character_tokenizer(std::string vocabulary);

/// Every byte is a token, and 256 ends a text.
std::unique_ptr<const Tokenizer> make_byte_tokenizer();

/// GPT-2's byte pair encoding, from the files that come with such models. DataError where they do not fit together.
std::unique_ptr<const Tokenizer> make_gpt2_tokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges);

inline constexpr const char *kTokensFile = "tokens.json", *kVocabularyFile = "vocab.json", *kMergesFile = "merges.txt";

/// What a folder's tokens.json says; nothing where there is none.
struct TokensDescription {
  std::string encoding;  // "bytes" or "gpt2"
  std::int64_t vocabulary = 0;
};
std::optional<TokensDescription> describe_tokens(const std::filesystem::path& folder);
void write_description(const std::filesystem::path& folder, const TokensDescription& description);

/// The tokenizer of a folder of tokens; null where it has no tokens.json.
std::unique_ptr<const Tokenizer> tokenizer_of(const std::filesystem::path& folder);

}  // namespace paceline::data

#include "paceline/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::data {
namespace {

class CharacterTokenizer final : public Tokenizer {
 public:
  explicit CharacterTokenizer(std::string vocabulary) : vocabulary_(std::move(vocabulary)) {
    for (std::size_t token = 0; token < vocabulary_.size(); ++token)
      token_of_[static_cast<std::uint8_t>(vocabulary_[token])] = static_cast<int>(token);
  }

  std::int64_t vocabulary() const override { return std::ssize(vocabulary_); }

  void encode(std::string_view text, std::vector<std::uint32_t>& tokens) const override {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      if (token_of_[byte] < 0)
        throw ConfigError(fmt::format("byte {} of the text (0x{:02x}{}) is not among the {} characters that the network was trained with",
                                      i, byte, byte >= 32 && byte < 127 ? fmt::format(", '{}'", text[i]) : "", vocabulary_.size()));
      tokens.push_back(static_cast<std::uint32_t>(token_of_[byte]));
    }
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens)
      if (token >= 0 && token < std::ssize(vocabulary_)) text += vocabulary_[static_cast<std::size_t>(token)];
    return text;
  }

 private:
  std::string vocabulary_;
  std::array<int, 256> token_of_ = [] {
    std::array<int, 256> none{};
    none.fill(-1);
    return none;
  }();
};

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocabulary() const override { return 257; }
  std::optional<std::uint32_t> end_of_text() const override { return 256; }
  void encode(std::string_view text, std::vector<std::uint32_t>& tokens) const override {
    for (const char c : text) tokens.push_back(static_cast<std::uint8_t>(c));
  }
  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens)
      if (token >= 0 && token < 256) text += static_cast<char>(token);
    return text;
  }
};

}  // namespace

std::unique_ptr<const Tokenizer> make_character_tokenizer(std::string vocabulary) {
  return std::make_unique<CharacterTokenizer>(std::move(vocabulary));
}

std::unique_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::optional<TokensDescription> describe_tokens(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kTokensFile;
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  TokensDescription found;
  if (json.is_object()) {
    const auto encoding = json.find("encoding"), vocabulary = json.find("vocabulary");
    if (encoding != json.end() && encoding->is_string()) found.encoding = encoding->get<std::string>();
    if (vocabulary != json.end() && vocabulary->is_number_integer()) found.vocabulary = vocabulary->get<std::int64_t>();
  }
  if ((found.encoding != "bytes" && found.encoding != "gpt2") || found.vocabulary < 1 || found.vocabulary > (std::int64_t{1} << 32))
    throw DataError(file.string(), R"(is not a description of tokens; expected {"encoding": "bytes" or "gpt2", "vocabulary": its size}; )"
                                   "write the folder again with paceline tokenize");
  return found;
}

void write_description(const std::filesystem::path& folder, const TokensDescription& description) {
  const nlohmann::ordered_json json = {{"encoding", description.encoding}, {"vocabulary", description.vocabulary}};
  write_atomically(folder / kTokensFile, json.dump(2) + "\n");
}

std::unique_ptr<const Tokenizer> tokenizer_of(const std::filesystem::path& folder) {
  const auto description = describe_tokens(folder);
  if (!description) return nullptr;
  if (description->encoding == "bytes") return make_byte_tokenizer();
  return make_gpt2_tokenizer(folder / kVocabularyFile, folder / kMergesFile);
}

}  // namespace paceline::data

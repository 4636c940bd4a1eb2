// GPT-2's byte pair encoding (Radford et al. 2019; Sennrich et al., "Neural machine translation of rare words with subword units", 2016).
//
// A text is split into words by the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A word begins as one token per byte. Then the neighbouring pair that comes first in merges.txt becomes one token, the leftmost of equal
// pairs first, until no pair is in that file. The files write every byte as a printable character (characters_of_bytes).
//
// Bytes that are not UTF-8 are characters of kind `other`, so that any file can be encoded and decoded without loss.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/data/tokenizer.h"
#include "paceline/data/unicode_kinds.h"

namespace paceline::data {
namespace {

std::string utf8_of(unsigned character) {  // below 0x800
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

/// For each byte: itself if Latin-1 can print it; the others are numbered from 256.
std::array<std::string, 256> characters_of_bytes() {
  std::array<std::string, 256> characters;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    characters[byte] = utf8_of(printable ? byte : next++);
  }
  return characters;
}

std::size_t run_of(std::string_view text, std::size_t at, CharacterKind kind) {
  while (at < text.size()) {
    const Character character = first_character(text.substr(at));
    if (character.kind != kind) break;
    at += character.bytes;
  }
  return at;
}

/// The number of bytes in the first word of a text.
std::size_t first_word(std::string_view text) {
  if (text[0] == '\'')
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (text.starts_with(ending)) return ending.size();
  const std::size_t space = text[0] == ' ' ? 1 : 0;
  if (space < text.size()) {
    const Character first = first_character(text.substr(space));
    if (first.kind != CharacterKind::space) return run_of(text, space + first.bytes, first.kind);
  }
  // White space: at the end of the text, all of it is one word; otherwise its last character belongs to the next word, unless it is alone.
  std::size_t end = 0, last = 0;
  while (end < text.size()) {
    const Character character = first_character(text.substr(end));
    if (character.kind != CharacterKind::space) return last > 0 ? last : end;
    last = end, end += character.bytes;
  }
  return end;
}

struct Merge {
  std::uint32_t rank = 0, made = 0;
};

using Merges = std::unordered_map<std::uint64_t, Merge>;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

/// One word while its tokens are merged: a linked list, and a heap of the pairs that may be merged, the first in merges.txt on top.
class MergingWord {
 public:
  MergingWord(std::string_view word, const std::array<std::uint32_t, 256>& token_of_byte, const Merges& merges) : merges_(merges) {
    links_.reserve(word.size());
    for (std::size_t i = 0; i < word.size(); ++i)
      links_.push_back(
          {token_of_byte[static_cast<std::uint8_t>(word[i])], static_cast<int>(i) - 1, i + 1 < word.size() ? static_cast<int>(i) + 1 : -1});
    for (int i = 0; i + 1 < static_cast<int>(links_.size()); ++i) consider(i);
  }

  void merge_all() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      Link& left = links_[static_cast<std::size_t>(best.place)];
      if (left.gone || left.next < 0) continue;
      Link& right = links_[static_cast<std::size_t>(left.next)];
      if (pair_of(left.token, right.token) != best.pair) continue;  // one of the two has been merged since
      left.token = merges_.at(best.pair).made, left.next = right.next, right.gone = true;
      if (left.next >= 0) links_[static_cast<std::size_t>(left.next)].before = best.place, consider(best.place);
      if (left.before >= 0) consider(left.before);
    }
  }

  void append_to(std::vector<std::uint32_t>& tokens) const {
    for (const Link& link : links_)
      if (!link.gone) tokens.push_back(link.token);
  }

 private:
  struct Link {
    std::uint32_t token = 0;
    int before = -1, next = -1;
    bool gone = false;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    int place = 0;
    std::uint64_t pair = 0;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : place > other.place; }
  };

  void consider(int place) {
    const Link& left = links_[static_cast<std::size_t>(place)];
    const std::uint64_t pair = pair_of(left.token, links_[static_cast<std::size_t>(left.next)].token);
    if (const auto found = merges_.find(pair); found != merges_.end()) candidates_.push({found->second.rank, place, pair});
  }

  const Merges& merges_;
  std::vector<Link> links_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  Gpt2Tokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges) {
    const std::unordered_map<std::string, std::uint32_t> tokens = read_vocabulary(vocabulary);
    const auto characters = characters_of_bytes();
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = tokens.find(characters[byte]);
      if (found == tokens.end())
        throw DataError(
            vocabulary.string(),
            fmt::format("has no token for byte {} ('{}'); expected GPT-2's vocab.json, with all 256 of them", byte, characters[byte]));
      token_of_byte_[byte] = found->second;
    }
    write_out(tokens, characters);
    if (const auto found = tokens.find("<|endoftext|>"); found != tokens.end()) end_ = found->second, pieces_[*end_].clear();
    read_merges(merges, tokens);
  }

  std::int64_t vocabulary() const override { return std::ssize(pieces_); }
  std::optional<std::uint32_t> end_of_text() const override { return end_; }

  void encode(std::string_view text, std::vector<std::uint32_t>& tokens) const override {
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;  // words of this text: where their tokens begin and end
    while (!text.empty()) {
      const std::string_view word = text.substr(0, first_word(text));
      text.remove_prefix(word.size());
      const std::size_t begin = tokens.size();
      const auto [known, is_new] = seen.try_emplace(word, begin, begin);
      if (is_new) {
        MergingWord merging(word, token_of_byte_, merges_);
        merging.merge_all();
        merging.append_to(tokens);
        known->second.second = tokens.size();
      } else {
        for (std::size_t i = known->second.first; i < known->second.second; ++i) tokens.push_back(tokens[i]);
      }
    }
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens)
      if (token >= 0 && token < std::ssize(pieces_)) text += pieces_[static_cast<std::size_t>(token)];
    return text;
  }

 private:
  static std::unordered_map<std::string, std::uint32_t> read_vocabulary(const std::filesystem::path& file) {
    constexpr std::int64_t kMost = 1 << 24;  // a typing error must not allocate gigabytes
    const nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.empty())
      throw DataError(file.string(), "is not a vocabulary; expected GPT-2's vocab.json: an object with a number for every token");
    std::unordered_map<std::string, std::uint32_t> tokens;
    std::unordered_map<std::uint32_t, std::string> names;
    for (const auto& [name, number] : json.items()) {
      if (!number.is_number_integer() || number.get<std::int64_t>() < 0 || number.get<std::int64_t>() >= kMost)
        throw DataError(file.string(),
                        fmt::format("token '{}' has the number {}; expected one from 0 to {}", name, number.dump(), kMost - 1));
      const auto token = number.get<std::uint32_t>();
      if (const auto [other, is_new] = names.try_emplace(token, name); !is_new)
        throw DataError(file.string(), fmt::format("tokens '{}' and '{}' have the same number, {}", other->second, name, token));
      tokens.emplace(name, token);
    }
    return tokens;
  }

  /// The bytes that each token stands for. A special token stands for its name.
  void write_out(const std::unordered_map<std::string, std::uint32_t>& tokens, const std::array<std::string, 256>& characters) {
    std::unordered_map<std::string_view, char> byte_of;
    for (std::size_t byte = 0; byte < 256; ++byte) byte_of.emplace(characters[byte], static_cast<char>(byte));
    for (const auto& [name, token] : tokens) {
      if (token >= pieces_.size()) pieces_.resize(std::size_t{token} + 1);
      std::string& piece = pieces_[token];
      for (std::size_t at = 0, bytes = 0; at < name.size(); at += bytes) {
        bytes = first_character(std::string_view(name).substr(at)).bytes;
        const auto found = byte_of.find(std::string_view(name).substr(at, bytes));
        if (found == byte_of.end()) {
          piece = name;
          break;
        }
        piece += found->second;
      }
    }
  }

  void read_merges(const std::filesystem::path& file, const std::unordered_map<std::string, std::uint32_t>& tokens) {
    const std::string content = read_file(file);
    std::uint32_t rank = 0;
    std::int64_t number = 0;
    for (std::size_t at = 0; at < content.size();) {
      const std::size_t end = std::min(content.find('\n', at), content.size());
      std::string line = content.substr(at, end - at);
      at = end + 1, ++number;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
      const std::size_t space = line.find(' ');
      const auto find = [&](const std::string& name) {
        const auto found = tokens.find(name);
        if (space == std::string::npos || found == tokens.end())
          throw DataError(file.string(), fmt::format("line {}, '{}', is not a pair of tokens that merge to a token of the vocabulary; use "
                                                     "the merges.txt that belongs to the vocab.json",
                                                     number, line));
        return found->second;
      };
      const std::string left = line.substr(0, space), right = space == std::string::npos ? "" : line.substr(space + 1);
      merges_.try_emplace(pair_of(find(left), find(right)), rank++, find(left + right));
    }
  }

  std::array<std::uint32_t, 256> token_of_byte_{};
  std::vector<std::string> pieces_;  // by token
  Merges merges_;
  std::optional<std::uint32_t> end_;
};

}  // namespace

std::unique_ptr<const Tokenizer> make_gpt2_tokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges) {
  return std::make_unique<Gpt2Tokenizer>(vocabulary, merges);
}

}  // namespace paceline::data

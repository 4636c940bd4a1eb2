// Files of tokens: 16 or 32 bits each, little endian, alone or behind the header that llm.c writes.
//
// The header is 256 int32: magic, version, number of tokens, and zeros. Magic 20240520 with version 1 holds GPT-2's tokens, 20240801 with
// version 7 Llama 3's. The size of the file says how wide the tokens behind a header are; without one, the recipe does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "paceline/base/files.h"

namespace paceline::data {

class TokenFile {
 public:
  /// `bits`: of a token where there is no header. DataError where the file cannot be what it says.
  TokenFile(std::filesystem::path file, int bits);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return count_; }
  int bits() const { return bits_; }
  /// The tokenizer's, which the header tells; nothing where there is no header.
  std::optional<std::int64_t> vocabulary() const { return vocabulary_; }

  /// Copies the tokens from `first` on. DataError names the first token that is not below `vocabulary`.
  void read(std::int64_t first, std::span<std::int64_t> out, std::int64_t vocabulary) const;
  /// Looks at all tokens of [first, last) without copying them.
  void check(std::int64_t first, std::int64_t last, std::int64_t vocabulary) const;

 private:
  template <class Token>
  const Token* tokens() const;
  template <class Token>
  void check_as(std::int64_t first, std::int64_t last, std::int64_t vocabulary) const;
  [[noreturn]] void refuse(std::int64_t position, std::int64_t token, std::int64_t vocabulary) const;

  std::filesystem::path path_;
  MappedFile mapped_;
  int bits_;
  std::int64_t count_ = 0, offset_ = 0;  // of the first token, in bytes
  std::optional<std::int64_t> vocabulary_;
};

/// Writes tokens with llm.c's header for GPT-2; 32 bits each where `bits` says so. Tokens fit into them.
FileStamp write_token_file(const std::filesystem::path& file, std::span<const std::uint32_t> tokens, int bits);

}  // namespace paceline::data

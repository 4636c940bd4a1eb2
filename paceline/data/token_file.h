// Files of tokens: 16 or 32 bits each, little endian, with or without the header that llm.c writes.
//
// The header is 256 int32: magic, version, number of tokens, and zeros. Magic 20240520 with version 1 holds GPT-2's tokens, 20240801 with
// version 7 Llama 3's. With a header, the width of a token follows from the file's size; without one, the recipe gives it.
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
  /// `bits`: of a token if there is no header. DataError if the file contradicts its header.
  TokenFile(std::filesystem::path file, int bits);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return count_; }
  int bits() const { return bits_; }
  /// The vocabulary size by the header; nullopt without a header.
  std::optional<std::int64_t> vocabulary() const { return vocabulary_; }

  /// Copies the tokens starting at `first`. DataError names the first token that is not below `vocabulary`.
  void read(std::int64_t first, std::span<std::int64_t> out, std::int64_t vocabulary) const;
  /// Checks all tokens of [first, last) without copying them.
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

/// Writes tokens with llm.c's header for GPT-2; of 16 or 32 `bits` each, into which all tokens must fit.
FileStamp write_token_file(const std::filesystem::path& file, std::span<const std::uint32_t> tokens, int bits);

}  // namespace paceline::data

#include "paceline/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "paceline/base/error.h"

namespace paceline::data {
namespace {

constexpr std::int64_t kHeaderBytes = 256 * sizeof(std::int32_t);

struct HeaderKind {
  std::int32_t magic, version;
  std::int64_t vocabulary;
};
constexpr HeaderKind kHeaderKinds[] = {{20240520, 1, 50257}, {20240801, 7, 128256}};

std::int32_t header_word(std::span<const std::byte> bytes, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

const HeaderKind* header_kind(std::span<const std::byte> bytes) {
  if (static_cast<std::int64_t>(bytes.size()) < kHeaderBytes) return nullptr;
  const auto found = std::ranges::find(kHeaderKinds, header_word(bytes, 0), &HeaderKind::magic);
  return found == std::end(kHeaderKinds) ? nullptr : found;
}

}  // namespace

TokenFile::TokenFile(std::filesystem::path file, int bits) : path_(std::move(file)), mapped_(path_), bits_(bits) {
  const auto bytes = static_cast<std::int64_t>(mapped_.bytes().size());
  const HeaderKind* kind = header_kind(mapped_.bytes());
  if (!kind) {
    if (bytes % (bits / 8) != 0)
      throw DataError(
          path_.string(),
          fmt::format(
              "has {} bytes, which is not a whole number of {}-bit tokens; it is cut short, or needs another data.token_bits (16 or 32)",
              bytes, bits));
    count_ = bytes / (bits / 8);
    return;
  }
  if (header_word(mapped_.bytes(), 1) != kind->version)
    throw DataError(path_.string(), fmt::format("has version {} in its header, expected {} for magic {}; write it with a newer llm.c or "
                                                "with paceline tokenize",
                                                header_word(mapped_.bytes(), 1), kind->version, kind->magic));
  count_ = header_word(mapped_.bytes(), 2), offset_ = kHeaderBytes, vocabulary_ = kind->vocabulary;
  const std::int64_t behind = bytes - kHeaderBytes;
  bits_ = behind == 4 * count_ && count_ > 0 ? 32 : 16;
  if (count_ < 0 || behind != count_ * (bits_ / 8))
    throw DataError(path_.string(), fmt::format("has {} bytes after its header, which announces {} tokens: expected {} bytes (16 bits "
                                                "each) or {} (32 bits); the file is cut short or damaged, write it again",
                                                behind, count_, 2 * count_, 4 * count_));
}

template <class Token>
const Token* TokenFile::tokens() const {
  return reinterpret_cast<const Token*>(mapped_.bytes().data() + offset_);  // pages and the header are multiples of 4 bytes
}

void TokenFile::refuse(std::int64_t position, std::int64_t token, std::int64_t vocabulary) const {
  throw DataError(path_.string(), fmt::format("token {} at position {} is beyond the vocabulary of {}; set data.vocabulary to the "
                                              "tokenizer's size, or data.token_bits to {} if the file has no header",
                                              token, position, vocabulary, bits_ == 16 ? 32 : 16));
}

template <class Token>
void TokenFile::check_as(std::int64_t first, std::int64_t last, std::int64_t vocabulary) const {
  // First the maximum of a block, which vectorises; the position is needed only in the rare case of an error.
  constexpr std::int64_t kBlock = 1 << 14;
  for (std::int64_t block = first; block < last; block += kBlock) {
    const Token* const begin = tokens<Token>() + block;
    const std::int64_t count = std::min(kBlock, last - block);
    Token largest = 0;
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, begin[i]);
    if (static_cast<std::int64_t>(largest) < vocabulary) continue;
    const Token* const bad =
        std::find_if(begin, begin + count, [&](Token token) { return static_cast<std::int64_t>(token) >= vocabulary; });
    refuse(block + (bad - begin), *bad, vocabulary);
  }
}

void TokenFile::check(std::int64_t first, std::int64_t last, std::int64_t vocabulary) const {
  ensure(0 <= first && first <= last && last <= count_, "a check is of tokens that the file has");
  if (bits_ == 16) check_as<std::uint16_t>(first, last, vocabulary);
  else check_as<std::uint32_t>(first, last, vocabulary);
}

void TokenFile::read(std::int64_t first, std::span<std::int64_t> out, std::int64_t vocabulary) const {
  check(first, first + std::ssize(out), vocabulary);
  if (bits_ == 16) std::copy_n(tokens<std::uint16_t>() + first, out.size(), out.begin());
  else std::copy_n(tokens<std::uint32_t>() + first, out.size(), out.begin());
}

FileStamp write_token_file(const std::filesystem::path& file, std::span<const std::uint32_t> tokens, int bits) {
  std::array<std::int32_t, 256> header{};
  header[0] = kHeaderKinds[0].magic, header[1] = kHeaderKinds[0].version, header[2] = static_cast<std::int32_t>(tokens.size());
  AtomicFile made(file);
  made.write(std::as_bytes(std::span(header)));
  if (bits == 32) {
    made.write(std::as_bytes(tokens));
  } else {
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    made.write(std::as_bytes(std::span(narrow)));
  }
  return made.commit();
}

}  // namespace paceline::data

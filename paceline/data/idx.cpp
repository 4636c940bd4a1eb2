#include "paceline/data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "paceline/base/error.h"

namespace paceline::data {
namespace {

/// zlib reads plain files as they are, so one reader serves both.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : name_(file.string()) {
    std::error_code problem;
    stored_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(file, problem));
    if (problem) throw DataError(name_, fmt::format("cannot be read: {}", problem.message()));
    stream_.reset(gzopen(name_.c_str(), "rb"));
    if (!stream_) throw DataError(name_, "cannot be opened");
    gzbuffer(stream_.get(), 1 << 18);
  }

  /// Fills `out` or throws.
  void fill(std::span<std::uint8_t> out, std::int64_t expected_total) {
    if (read_some(out) != static_cast<std::int64_t>(out.size()))
      throw DataError(name_, fmt::format("has {} bytes, expected {}; the file is cut short, fetch it again", position_, expected_total));
  }

  void expect_end() {
    std::array<std::uint8_t, 1> extra{};
    const std::int64_t end = position_;
    if (read_some(extra) != 0) throw DataError(name_, end, "has more bytes than its header says; fetch the file again");
  }

  /// Whether so many bytes can lie in this file at all: deflate never packs tighter than 1032 to 1. Guards the allocation.
  bool can_hold(std::int64_t bytes) { return bytes <= stored_bytes_ * (gzdirect(stream_.get()) ? 1 : 1032); }

 private:
  std::int64_t read_some(std::span<std::uint8_t> out) {
    std::int64_t done = 0;
    while (done < static_cast<std::int64_t>(out.size())) {
      const std::size_t want = std::min<std::size_t>(out.size() - static_cast<std::size_t>(done), std::size_t{1} << 30);
      const int got = gzread(stream_.get(), out.data() + done, static_cast<unsigned>(want));
      if (got < 0) fail();
      if (got == 0) break;
      done += got;
      position_ += got;
    }
    // A stream that breaks off inside its last block gives its bytes first and tells only when asked.
    int code = Z_OK;
    gzerror(stream_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail();
    return done;
  }

  [[noreturn]] void fail() {
    int code = Z_OK;
    const char* message = gzerror(stream_.get(), &code);
    throw DataError(name_, position_, fmt::format("the compressed data is damaged or cut short ({}); fetch the file again", message));
  }

  struct Close {
    void operator()(gzFile stream) const { gzclose(stream); }
  };
  std::string name_;
  std::int64_t stored_bytes_ = 0, position_ = 0;
  std::unique_ptr<gzFile_s, Close> stream_;
};

std::int64_t big_endian(const std::uint8_t* four) {
  return (std::int64_t{four[0]} << 24) | (std::int64_t{four[1]} << 16) | (std::int64_t{four[2]} << 8) | std::int64_t{four[3]};
}

}  // namespace

Idx read_idx(const std::filesystem::path& file, int rank) {
  Reader reader(file);
  const std::int64_t header_bytes = 4 + 4 * rank;
  std::vector<std::uint8_t> header(static_cast<std::size_t>(header_bytes));
  reader.fill(std::span(header).first(4), header_bytes);
  const std::int64_t magic = big_endian(header.data()), expected = 0x800 + rank;
  if (magic != expected)
    throw DataError(
        file.string(), 0,
        fmt::format("is not an IDX file of bytes with {} dimensions: magic {:#010x}, expected {:#010x}", rank, magic, expected));
  reader.fill(std::span(header).subspan(4), header_bytes);

  Idx idx;
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    idx.shape.push_back(big_endian(header.data() + 4 + 4 * d));
    if (idx.shape.back() == 0) throw DataError(file.string(), 4 + 4 * d, "the header says that the file is empty");
    // A size is below 2^32 and the product before it below 2^31, so that it cannot overflow.
    count *= idx.shape.back();
    if (!reader.can_hold(count) || count >= std::int64_t{1} << 31)
      throw DataError(file.string(), 4 + 4 * d, fmt::format("the header asks for {} bytes or more, which the file cannot hold", count));
  }
  idx.bytes.resize(static_cast<std::size_t>(count));
  reader.fill(idx.bytes, header_bytes + count);
  reader.expect_end();
  return idx;
}

}  // namespace paceline::data

#include "paceline/data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::data {
namespace {

/// Reads plain and compressed files. Does not use zlib's gzread, which ignores garbage after the end of the stream.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file)
      : name_(file.string()),
        file_(file),
        stored_(reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()),
        packed_(stored_.starts_with(kMagic)) {
    if (packed_ && inflateInit2(&stream_, MAX_WBITS + 16) != Z_OK) throw Error(name_ + ": not enough memory to decompress it");
  }
  ~Reader() {
    if (packed_) inflateEnd(&stream_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Fills `out` or throws.
  void fill(std::span<std::uint8_t> out, std::int64_t expected_total) {
    if (read_some(out) != out.size())
      throw DataError(name_, fmt::format("has {} bytes, expected {}; the file is cut short; download it again", position_, expected_total));
  }

  void expect_end() {
    std::array<std::uint8_t, 1> extra{};
    const std::int64_t end = position_;
    if (read_some(extra) != 0) throw DataError(name_, end, "has more bytes than its header says; download it again");
  }

  /// Whether this file can hold this many bytes: deflate never compresses better than 1032 to 1. Checked before memory is allocated.
  bool can_hold(std::int64_t bytes) const { return bytes <= std::ssize(stored_) * (packed_ ? 1032 : 1); }

 private:
  static constexpr std::string_view kMagic = "\x1f\x8b";

  std::size_t read_some(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t got =
          packed_ ? inflate_some(out.subspan(done)) : stored_.copy(reinterpret_cast<char*>(&out[done]), out.size() - done, taken_);
      if (got == 0) break;
      if (!packed_) taken_ += got;
      done += got;
      position_ += static_cast<std::int64_t>(got);
    }
    return done;
  }

  /// At least one byte, or none at the end of the last stream: a file may consist of several streams.
  std::size_t inflate_some(std::span<std::uint8_t> out) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
    for (;;) {
      const std::string_view left = stored_.substr(taken_);
      if (ended_) {
        if (left.empty()) return 0;
        if (!left.starts_with(kMagic))
          throw DataError(name_, static_cast<std::int64_t>(taken_),
                          fmt::format("{} bytes follow the end of the compressed data; download the file again", left.size()));
        inflateReset(&stream_);
        ended_ = false;
      }
      const auto given = static_cast<uInt>(std::min(left.size(), kMost)), room = static_cast<uInt>(std::min(out.size(), kMost));
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left.data()));
      stream_.avail_in = given;
      stream_.next_out = out.data();
      stream_.avail_out = room;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      taken_ += given - stream_.avail_in;
      ended_ = code == Z_STREAM_END;
      if (code != Z_OK && !ended_)  // Z_BUF_ERROR: it needs more input than there is
        throw DataError(name_, position_,
                        fmt::format("the compressed data is damaged or cut short ({}); download the file again",
                                    code == Z_BUF_ERROR ? "unexpected end of file"
                                    : stream_.msg       ? stream_.msg
                                                        : "unknown format"));
      if (room > stream_.avail_out) return room - stream_.avail_out;
    }
  }

  std::string name_;
  MappedFile file_;  // mapped, not read: a wrong file may be huge
  std::string_view stored_;
  bool packed_, ended_ = false;
  std::size_t taken_ = 0;      // stored bytes that were consumed
  std::int64_t position_ = 0;  // in the uncompressed content
  z_stream stream_{};
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

#include "paceline/base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"

namespace paceline::safetensors {
namespace {

using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  /// A file with this header and so many bytes of data; the length stands as given or is that of the header.
  void compose(const std::string& header, std::size_t data_bytes, std::optional<std::uint64_t> length = {}) {
    std::ofstream out(path, std::ios::binary);
    const std::uint64_t n = length.value_or(header.size());
    out.write(reinterpret_cast<const char*>(&n), 8);
    out << header << std::string(data_bytes, 'x');
  }

  std::string refusal() {
    try {
      File file(path);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), HasSubstr("not a valid safetensors file: "));
      return error.what();
    }
    return "accepted";
  }
  std::string refusal(const std::string& header, std::size_t data_bytes) {
    compose(header, data_bytes);
    return refusal();
  }

  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "test.safetensors";
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST_F(SafetensorsTest, WhatIsWrittenReadsBack) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint8_t> mask = {1, 0, 1};
  const std::vector<std::int64_t> step = {7};
  const std::vector<Tensor> tensors = {{"mask", Dtype::BOOL, {3}, std::as_bytes(std::span(mask))},
                                       {"layer \"1\".weight", Dtype::F32, {2, 3}, std::as_bytes(std::span(weights))},
                                       {"step", Dtype::I64, {}, std::as_bytes(std::span(step))},
                                       {"nothing", Dtype::F16, {0, 4}, {}}};
  const FileStamp stamp = write(path, tensors, {{"made_by", "paceline"}});
  EXPECT_EQ(static_cast<std::uintmax_t>(stamp.bytes), std::filesystem::file_size(path));
  EXPECT_EQ(stamp.crc32c, crc32c(bytes_of(read_file(path))));

  const File file(path);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (Metadata{{"made_by", "paceline"}}));
  for (const Tensor& tensor : tensors) {
    const Tensor* read = file.find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(read->data, tensor.data));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read->data.data()) % size_of(read->dtype), 0u) << tensor.name;
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST_F(SafetensorsTest, BytesInMemoryAreThoseOfAFile) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> step = {7};
  const std::vector<Tensor> tensors = {{"weight", Dtype::F32, {2, 3}, std::as_bytes(std::span(weights))},
                                       {"step", Dtype::I64, {}, std::as_bytes(std::span(step))}};
  write(path, tensors);
  std::string bytes = to_bytes(tensors);
  EXPECT_EQ(bytes, read_file(path));
  const std::vector<Tensor> read = from_bytes(std::as_bytes(std::span(bytes)), "a message");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].name, "weight");
  EXPECT_TRUE(std::ranges::equal(read[1].data, tensors[0].data));
  bytes.pop_back();
  EXPECT_THROW(from_bytes(std::as_bytes(std::span(bytes)), "a message"), DataError);
}

TEST_F(SafetensorsTest, TheHeaderIsPaddedToEight) {
  const std::vector<std::byte> data(3);
  write(path, std::vector<Tensor>{{"a", Dtype::U8, {3}, data}});
  const std::string content = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(content[8], '{');
  EXPECT_EQ(content.size(), 8 + length + 3);
}

TEST_F(SafetensorsTest, EmptyFilesOfTheFormatAreValid) {
  write(path, {});
  EXPECT_TRUE(File(path).tensors().empty());
  compose("{}", 0);
  EXPECT_TRUE(File(path).tensors().empty());
}

TEST_F(SafetensorsTest, WrongTensorsAreRefusedBeforeAnythingIsWritten) {
  const std::vector<std::byte> data(4);
  EXPECT_THROW(write(path, std::vector<Tensor>{{"a", Dtype::F32, {2}, data}}), InternalError);
  EXPECT_THROW(write(path, std::vector<Tensor>{{"a", Dtype::F32, {1}, data}, {"a", Dtype::F32, {1}, data}}), InternalError);
  EXPECT_THROW(write(path, std::vector<Tensor>{{"__metadata__", Dtype::F32, {1}, data}}), InternalError);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SafetensorsTest, RefusesAWrongLength) {
  std::ofstream(path) << "short";
  EXPECT_THAT(refusal(), HasSubstr("5 bytes are too few"));
  compose("{}", 0, 100'000'001);
  EXPECT_THAT(refusal(), HasSubstr("at most 100000000"));
  compose("{}", 0, 3);
  EXPECT_THAT(refusal(), HasSubstr("cut"));
  compose("{}", 0, UINT64_MAX);
  EXPECT_THAT(refusal(), HasSubstr("at most"));
}

TEST_F(SafetensorsTest, RefusesAWrongHeader) {
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[1]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(R"({"a":1e999})", 0), HasSubstr("number that is out of range"));
  EXPECT_THAT(refusal(std::string(100000, '['), 0), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", 0), HasSubstr("'a' is not text"));
  EXPECT_THAT(refusal(R"({"a":5})", 0), HasSubstr("'a' has no dtype"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("'a' has no data_offsets"));
  const std::string a = entry("a", "U8", "[2]", "[0,2]");
  EXPECT_THAT(refusal("{" + a + "," + a + "}", 2), HasSubstr("'a'"));
}

TEST_F(SafetensorsTest, RefusesAWrongEntry) {
  EXPECT_THAT(refusal("{" + entry("a", "F33", "[1]", "[0,4]") + "}", 4), HasSubstr("dtype \"F33\""));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[-1]", "[0,4]") + "}", 4), HasSubstr("shape of tensor 'a' is not a list"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[1.5]", "[0,4]") + "}", 4), HasSubstr("is not a list"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "1", "[0,4]") + "}", 4), HasSubstr("is not a list"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[1]", "[4,0]") + "}", 4), HasSubstr("not [begin, end]"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[1]", "[0,4,8]") + "}", 4), HasSubstr("not [begin, end]"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[2]", "[0,4]") + "}", 4),
              HasSubstr("of shape [2] and dtype F32 has 8 bytes, its data_offsets span 4"));
  // 2^62 × 4 bytes = 2^64, which must not come round to 0.
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[4611686018427387904]", "[0,0]") + "}", 0), HasSubstr("overflows"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}", 0), HasSubstr("overflows"));
  EXPECT_THAT(refusal("{" + entry("a", "U8", "[18446744073709551615]", "[0,0]") + "}", 0), HasSubstr("overflows"));
}

TEST_F(SafetensorsTest, RefusesDataThatIsNotCoveredExactlyOnce) {
  const auto two = [](const std::string& first, const std::string& second) {
    return "{" + entry("a", "U8", "[2]", first) + "," + entry("b", "U8", "[2]", second) + "}";
  };
  compose(two("[2,4]", "[0,2]"), 4);  // any order of the entries is fine
  EXPECT_EQ(File(path).tensors().front().name, "b");
  EXPECT_THAT(refusal(two("[0,2]", "[3,5]"), 5), HasSubstr("hole"));
  EXPECT_THAT(refusal(two("[1,3]", "[3,5]"), 5), HasSubstr("hole"));
  EXPECT_THAT(refusal(two("[0,2]", "[1,3]"), 3), HasSubstr("overlap"));
  EXPECT_THAT(refusal(two("[0,2]", "[0,2]"), 2), HasSubstr("overlap"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,4]"), 5), HasSubstr("take 4 bytes, the file has 5"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,4]"), 3), HasSubstr("cut"));
}

// Whatever single byte of a header breaks, the reader answers with an error or with tensors that lie inside the file.
TEST_F(SafetensorsTest, NoFlippedByteOfTheHeaderGetsOutOfTheFile) {
  const std::vector<std::byte> data(24);
  const auto all = std::span<const std::byte>(data);
  write(path, std::vector<Tensor>{{"a", Dtype::F32, {2, 2}, all.first(16)}, {"b", Dtype::U8, {8}, all.subspan(16)}}, {{"k", "v"}});
  const std::string sound = read_file(path);
  for (std::size_t at = 0; at + 24 < sound.size(); ++at)
    for (int bit : {0, 3, 6}) {
      std::string broken = sound;
      broken[at] = static_cast<char>(broken[at] ^ (1 << bit));
      std::ofstream(path, std::ios::binary) << broken;
      try {
        const File file(path);
        std::size_t total = 0;
        for (const Tensor& tensor : file.tensors()) total += tensor.data.size();
        EXPECT_EQ(total, 24u);
      } catch (const DataError&) {
      }
    }
}

}  // namespace
}  // namespace paceline::safetensors

#include "paceline/observe/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "paceline/base/checksum.h"
#include "temp_folder.h"

namespace paceline::observe {
namespace {

template <class T>
T number(std::string_view bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::uint32_t masked(std::string_view data) { return std::rotr(crc32c(bytes_of(data)), 15) + 0xa282ead8u; }

/// The payloads of a file of records; checks both sums of each.
std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const auto length = number<std::uint64_t>(file);
    EXPECT_EQ(number<std::uint32_t>(file.substr(8)), masked(file.substr(0, 8)));
    records.emplace_back(file.substr(12, length));
    EXPECT_EQ(number<std::uint32_t>(file.substr(12 + length)), masked(records.back()));
    file.remove_prefix(16 + length);
  }
  return records;
}

/// A decoder of protobuf messages by its rules alone: field number → the raw values.
std::multimap<unsigned, std::string> fields_of(std::string_view message) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::multimap<unsigned, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t key = varint();
    const auto wire = key & 7;
    if (wire == 0) {
      fields.emplace(key >> 3, std::to_string(varint()));
      continue;
    }
    const std::size_t size = wire == 1 ? 8 : wire == 5 ? 4 : varint();
    fields.emplace(key >> 3, message.substr(0, size));
    message.remove_prefix(size);
  }
  return fields;
}

std::map<std::string, float> scalars_of(std::string_view event) {
  std::map<std::string, float> scalars;
  const std::string summary = fields_of(event).find(5)->second;
  for (const auto& [field, value] : fields_of(summary)) {
    EXPECT_EQ(field, 1u);
    const auto parts = fields_of(value);
    scalars[parts.find(1)->second] = number<float>(parts.find(2)->second);
  }
  return scalars;
}

TEST(TfEvents, TheFirstRecordIsTheKnownOne) {
  std::string hex;
  for (unsigned char byte : tfevents::record(tfevents::version_event())) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "0f000000000000006d532b091a0d627261696e2e4576656e743a32fc985129");
}

TEST(TfEvents, ScalarsDecodeAgain) {
  const tfevents::Scalar scalars[] = {{"train/loss", 0.25}, {"train/rate", 1e-3}};
  const auto event = tfevents::scalar_event(1234.5, 300, scalars);
  const auto fields = fields_of(event);
  EXPECT_EQ(number<double>(fields.find(1)->second), 1234.5);
  EXPECT_EQ(fields.find(2)->second, "300");
  EXPECT_EQ(scalars_of(event), (std::map<std::string, float>{{"train/loss", 0.25f}, {"train/rate", 1e-3f}}));
}

class TensorBoardTest : public TempFolderTest {
 protected:
  std::vector<std::string> written() { return written_in(folder); }
  static std::vector<std::string> written_in(const std::filesystem::path& run) {
    const auto file = *std::filesystem::directory_iterator(run);
    EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents.1700000000."));
    return records_of(read_file(file.path()));
  }
  VirtualClock clock;
};

TEST_F(TensorBoardTest, ARunBecomesAFileOfScalars) {
  {
    TensorBoard board(folder, clock, [] { return 1700000000.5; });
    EXPECT_EQ(written().size(), 1u);  // a file that was just opened is already one that loads
    board.on(RunStarted{});
    StepDone step;
    step.step = 200;
    step.loss = 0.5;
    step.accuracy = 0.75;
    step.rate = 0.1;
    step.samples = 64;
    step.duration = std::chrono::milliseconds(500);
    board.on(step);
    EpochDone epoch;
    epoch.train_loss = 0.625;
    board.on(epoch);
    board.on(Evaluated{1, 200, 0.375, 0.875});
  }
  const auto records = written();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(fields_of(records[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(scalars_of(records[2]),
            (std::map<std::string, float>{
                {"train/loss", 0.5f}, {"train/accuracy", 0.75f}, {"train/rate", 0.1f}, {"train/samples_per_s", 128.0f}}));
  EXPECT_EQ(fields_of(records[3]).find(2)->second, "200");
  EXPECT_EQ(scalars_of(records[3]).at("epoch/loss"), 0.625f);
  EXPECT_EQ(scalars_of(records[4]), (std::map<std::string, float>{{"test/loss", 0.375f}, {"test/accuracy", 0.875f}}));
}

TEST_F(TensorBoardTest, ARunThatBeginsAgainVoidsWhatCameLater) {
  for (const std::int64_t first_step : {0, 200}) {  // 0: it was killed before its first checkpoint
    const auto run_folder = folder / std::to_string(first_step);
    std::filesystem::create_directory(run_folder);
    {
      TensorBoard board(run_folder, clock, [] { return 1700000000.5; });
      RunStarted run;
      run.first_step = first_step;
      board.on(run);
    }
    const auto records = written_in(run_folder);
    ASSERT_EQ(records.size(), 2u);
    const auto fields = fields_of(records[1]);
    EXPECT_EQ(fields.find(2)->second, std::to_string(first_step + 1));
    EXPECT_EQ(fields_of(fields.find(7)->second).find(1)->second, "1");  // SessionLog.START
  }
}

TEST_F(TensorBoardTest, ALanguageModelHasNoAccuracyAndABrokenLossIsKept) {
  {
    TensorBoard board(folder, clock, [] { return 1700000000.5; });
    RunStarted run;
    run.per_token = true;
    board.on(run);
    StepDone step;
    step.loss = NAN;
    board.on(step);
    board.on(RunEnded{});
  }
  const auto scalars = scalars_of(written().at(2));
  EXPECT_TRUE(std::isnan(scalars.at("train/loss")));
  EXPECT_FALSE(scalars.contains("train/accuracy"));
}

}  // namespace
}  // namespace paceline::observe

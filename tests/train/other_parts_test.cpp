// State that processes hold which are led by another: each reports, hashes and writes its own part, and the leader gets none of it.
#include <ATen/ATen.h>

#include <map>

#include "paceline/comm/engine.h"
#include "paceline/train/checkpointer.h"
#include "paceline/train/other_parts.h"
#include "paceline/train/part_holder.h"
#include "paceline/train/part_orders.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kRows = 1 << 16;  // of each process
constexpr std::int64_t kColumns = 4;     // a part is 1 MiB

CheckpointMetadata metadata_at(std::int64_t step) {
  CheckpointMetadata metadata;
  metadata.position.step = step;
  metadata.recipe = "[train]\n", metadata.network = "mlp";
  return metadata;
}

/// Processes as threads would be: orders are carried out at once. Counts the bytes of their answers.
class HoldersHere final : public step::Holders {
 public:
  explicit HoldersHere(std::vector<std::vector<NamedTensor>> parts) : parts_(std::move(parts)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) start(i);
  }
  /// Process i, without what it knew.
  void start(std::size_t i) {
    processes_[i] = std::make_unique<PartHolder>([this, i](const PartHolder::Look& look) { look(parts_[i]); });
  }
  void stop(std::size_t i) { processes_[i].reset(); }
  std::vector<NamedTensor>& part(std::size_t i) { return parts_[i]; }
  std::size_t received() const { return received_; }

  Range own_range() const override { return {}; }
  std::vector<std::string> roll_call() override {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < parts_.size(); ++i) names.push_back("server " + std::to_string(i + 1));
    return names;
  }
  void give(std::span<const std::string> orders) override {
    answers_.assign(orders.size(), std::nullopt);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      if (orders[i].empty()) continue;
      answers_[i] = processes_[i] ? processes_[i]->carry_out(orders[i]) : "";
      received_ += answers_[i]->size();
    }
  }
  std::vector<std::optional<std::string>> answers(bool) override { return answers_; }

 private:
  std::vector<std::vector<NamedTensor>> parts_;
  std::map<std::size_t, std::unique_ptr<PartHolder>> processes_;
  std::vector<std::optional<std::string>> answers_;
  std::size_t received_ = 0;
};

/// A tensor of the model by rows, and one of each process alone; the leader is process 0.
std::vector<NamedTensor> part_of(int process, int processes) {
  const at::Tensor rows = at::arange(kRows * kColumns, at::kFloat).reshape({kRows, kColumns}) + process;
  return {step::rows_of("model.a", rows, process * kRows, processes * kRows),
          {"ps." + std::to_string(process) + ".version", at::tensor({process}, at::kLong)}};
}

std::vector<NamedTensor> whole_of(int processes) {
  std::vector<at::Tensor> rows;
  std::vector<NamedTensor> rest;
  for (int process = 0; process < processes; ++process) {
    const auto part = part_of(process, processes);
    rows.push_back(part[0].tensor), rest.push_back(part[1]);
  }
  rest.insert(rest.begin(), {"model.a", at::cat(rows)});
  return rest;
}

class OtherPartsTest : public testing::Test {
 protected:
  std::shared_ptr<OtherParts> ask() { return std::make_shared<OtherParts>(holders_, holders_.roll_call()); }
  bool write(std::int64_t step) {
    checkpointer_.begin(metadata_at(step), own_, /*good=*/true, ask());
    return checkpointer_.finish();
  }
  std::filesystem::path place(std::int64_t step) const { return checkpoint_folder(folder_ / "checkpoints", step); }

  Folder folder_;
  observe::Bus bus_;
  SteadyClock clock_;
  std::unique_ptr<comm::Communicator> alone_ = std::move(comm::local_group(1).front());
  Checkpointer checkpointer_{*alone_, bus_, clock_, folder_.path(), {}};
  std::vector<NamedTensor> own_ = part_of(0, 3);
  HoldersHere holders_{{part_of(1, 3), part_of(2, 3)}};
};

TEST_F(OtherPartsTest, EveryProcessWritesItsOwnAndTheLeaderGetsNothingOfIt) {
  ASSERT_TRUE(write(7));
  EXPECT_LT(holders_.received(), 10'000u) << "of " << 2 * kRows * kColumns * 4;
  for (std::size_t shard = 0; shard < 3; ++shard) {
    std::vector<std::string> names;
    const safetensors::File file(place(7) / shard_file(shard, 3));
    for (const safetensors::Tensor& tensor : file.tensors()) names.push_back(tensor.name);
    const std::string rows =
        std::to_string(kRows * static_cast<std::int64_t>(shard)) + ":" + std::to_string(kRows * (static_cast<std::int64_t>(shard) + 1));
    EXPECT_THAT(names, testing::UnorderedElementsAre("model.a[" + rows + "]", "ps." + std::to_string(shard) + ".version"));
  }
  const Checkpoint read = newest_good_checkpoint(folder_.path()).second;
  EXPECT_EQ(read.position.step, 7);
  for (const NamedTensor& item : whole_of(3))
    EXPECT_TRUE(at::equal(step::saved_or_none(read.tensors, item.name), item.tensor)) << item.name;
}

TEST_F(OtherPartsTest, TheHashIsThatOfTheWhole) {
  const auto others = ask();
  EXPECT_EQ(state_hash(own_, *others), state_hash(whole_of(3)));
  EXPECT_EQ(state_hash(own_, *others, "model."), state_hash(std::vector{whole_of(3)[0]}));
  EXPECT_LT(holders_.received(), 10'000u) << "the hash travels, and no tensor does";
}

TEST_F(OtherPartsTest, OfATensorThatIsCutAcrossItsRowsTheHashIsThatOfTheWholeToo) {
  const at::Tensor values = at::arange(24, at::kFloat).reshape({4, 6});
  const auto columns = [&](std::int64_t from, std::int64_t to) {
    return NamedTensor{"model.a", values.narrow(1, from, to - from), step::Box{{0, from}, {4, 6}}};
  };
  HoldersHere holders({{columns(1, 3), {"ps.1.b", at::ones(3)}}, {columns(3, 6)}});
  const std::vector<NamedTensor> own = {columns(0, 1)};
  const OtherParts others(holders, holders.roll_call());
  EXPECT_EQ(state_hash(own, others), state_hash(std::vector<NamedTensor>{{"model.a", values}, {"ps.1.b", at::ones(3)}}));
}

TEST_F(OtherPartsTest, WhatIsWrittenIsTheStateAtItsBeginning) {
  checkpointer_.begin(metadata_at(1), own_, /*good=*/true, ask());
  holders_.part(1)[0].tensor.fill_(-1);  // training goes on
  ASSERT_TRUE(checkpointer_.finish());
  const Checkpoint read = newest_good_checkpoint(folder_.path()).second;
  EXPECT_TRUE(at::equal(step::saved_or_none(read.tensors, "model.a"), whole_of(3)[0].tensor));
}

TEST_F(OtherPartsTest, AProcessThatIsGoneLosesItWithAnAlarmAndTheOneBeforeStays) {
  ASSERT_TRUE(write(7));
  checkpointer_.begin(metadata_at(9), own_, /*good=*/true, ask());
  holders_.stop(1);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(checkpointer_.finish());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("no checkpoint at step 9"), HasSubstr("server 2"), HasSubstr("gone")));
  EXPECT_THAT(list_checkpoints(folder_.path()), ElementsAre(place(7)));
  EXPECT_THROW(ask(), HolderGone);
  holders_.start(1);
  EXPECT_TRUE(write(9));
}

TEST_F(OtherPartsTest, AProcessThatWasStartedAgainMeanwhileLosesItToo) {
  checkpointer_.begin(metadata_at(9), own_, /*good=*/true, ask());
  holders_.stop(0), holders_.start(0);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(checkpointer_.finish());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("server 1"), HasSubstr("restarted")));
  EXPECT_TRUE(list_checkpoints(folder_.path()).empty());
}

TEST_F(OtherPartsTest, AProcessThatCannotAccessTheFolderSaysSo) {
  ASSERT_TRUE(write(7));
  put_bytes(place(9), "a file where the folder should be");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(write(9));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no checkpoint at step 9"));
  PartHolder elsewhere([](const PartHolder::Look& look) { look(part_of(1, 3)); });
  const std::string file = (folder_ / "not shared" / "shard-00002-of-00003.safetensors").string();
  elsewhere.carry_out(orders::pack({{"do", orders::kWrite}, {"file", file}}));
  orders::Json outcome;
  do outcome = orders::unpack(elsewhere.carry_out(orders::pack({{"do", orders::kOutcome}, {"file", file}})));
  while (!outcome.at("done"));
  EXPECT_THAT(outcome.at("problem").get<std::string>(), HasSubstr("train.runs"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "not shared"));
}

TEST_F(OtherPartsTest, AParameterThatIsNotFiniteIsFound) {
  EXPECT_FALSE(ask()->fault().has_value());
  holders_.part(1)[0].tensor[3][1] = NAN;
  EXPECT_THAT(ask()->fault().value(), AllOf(HasSubstr("'a'"), HasSubstr("server 2")));
}

TEST_F(OtherPartsTest, AnUnknownOrderIsRefused) {
  PartHolder holder([](const PartHolder::Look& look) { look({}); });
  EXPECT_THROW(holder.carry_out("nonsense"), DataError);
  EXPECT_THROW(holder.carry_out(orders::pack({{"do", "leave"}})), DataError);
}

}  // namespace
}  // namespace paceline::train

// Checkpoints: what goes in comes out, damage anywhere is noticed, and a strange one is refused with the difference.
#include <ATen/ATen.h>
#include <unistd.h>

#include <set>

#include "paceline/base/safetensors.h"
#include "paceline/train/tensor_file.h"
#include "support.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Checkpoint sample(std::int64_t step = 7) {
  Checkpoint checkpoint;
  checkpoint.position = {
      .step = step, .epoch = 1, .batch = 2, .samples = 112, .loss_sum = 1.0 / 3, .right = 5, .targets = 32, .seconds = 0.1};
  checkpoint.recipe = "[train]\nname = \"a \\\" b – ü\"\n";
  checkpoint.network = "mlp";
  checkpoint.tensors = {{"model.a.weight", at::arange(6, at::kFloat).reshape({2, 3})},
                        {"model.b", at::arange(4, at::kDouble)},
                        {"optim.count", at::scalar_tensor(41, at::kLong)},
                        {"optim.empty", at::empty({0, 3}, at::kFloat)},
                        {"optim.half", at::ones({3}, at::kBFloat16)}};
  return checkpoint;
}

TEST(Checkpoint, RoundTrip) {
  const Folder folder;
  const auto file = folder / "x.safetensors";
  const Checkpoint written = sample();
  const FileStamp stamp = write_checkpoint(file, written);
  EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(file)), stamp.bytes);
  const Checkpoint read = read_checkpoint(file);
  EXPECT_EQ(read.position.step, 7);
  EXPECT_EQ(read.position.epoch, 1);
  EXPECT_EQ(read.position.batch, 2);
  EXPECT_EQ(read.position.samples, 112);
  EXPECT_EQ(read.position.loss_sum, 1.0 / 3) << "doubles keep all their digits";
  EXPECT_EQ(read.position.right, 5);
  EXPECT_EQ(read.position.targets, 32);
  EXPECT_EQ(read.position.seconds, 0.1);
  EXPECT_EQ(read.recipe, written.recipe);
  EXPECT_EQ(read.network, "mlp");
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const NamedTensor& item : written.tensors) {
    const auto same =
        std::find_if(read.tensors.begin(), read.tensors.end(), [&](const NamedTensor& other) { return other.name == item.name; });
    ASSERT_NE(same, read.tensors.end()) << item.name;
    EXPECT_EQ(same->tensor.scalar_type(), item.tensor.scalar_type()) << item.name;
    EXPECT_EQ(same->tensor.sizes(), item.tensor.sizes()) << item.name;
    EXPECT_TRUE(at::equal(same->tensor, item.tensor)) << item.name;
  }
}

TEST(Checkpoint, EveryDamagedByteIsNoticed) {
  const Folder folder;
  const auto file = folder / "x.safetensors";
  write_checkpoint(file, sample());
  const std::string good = bytes_in(file);
  for (std::size_t offset = 0; offset < good.size(); ++offset)
    for (unsigned char mask : {0x01, 0x0f, 0x80}) {
      std::string bad = good;
      bad[offset] = static_cast<char>(bad[offset] ^ mask);
      put_bytes(file, bad);
      EXPECT_THROW(read_checkpoint(file), DataError) << "byte " << offset << " of " << good.size() << ", mask " << int{mask};
    }
  put_bytes(file, good);
  EXPECT_NO_THROW(read_checkpoint(file));
}

TEST(Checkpoint, EveryTruncationAndAppendixIsNoticed) {
  const Folder folder;
  const auto file = folder / "x.safetensors";
  write_checkpoint(file, sample());
  const std::string good = bytes_in(file);
  for (std::size_t length = 0; length < good.size(); ++length) {
    put_bytes(file, good.substr(0, length));
    EXPECT_THROW(read_checkpoint(file), DataError) << length;
  }
  put_bytes(file, good + "x");
  EXPECT_THROW(read_checkpoint(file), DataError);
}

TEST(Checkpoint, TensorsOfOneTypeThatWereExchangedAreNoticed) {
  const Folder folder;
  const auto file = folder / "x.safetensors";
  Checkpoint checkpoint = sample();
  checkpoint.tensors = {{"model.a", at::zeros({2}, at::kFloat)}, {"model.b", at::ones({2}, at::kFloat)}};
  write_checkpoint(file, checkpoint);
  std::string bytes = bytes_in(file);
  std::swap_ranges(bytes.end() - 16, bytes.end() - 8, bytes.end() - 8);
  put_bytes(file, bytes);
  EXPECT_THAT(message_of<DataError>([&] { read_checkpoint(file); }), AllOf(HasSubstr(file.string()), HasSubstr("'model.a'")));
}

TEST(Checkpoint, AForeignFileIsRefused) {
  const Folder folder;
  const auto weights = folder / "weights.safetensors", text = folder / "notes.txt";
  const std::vector<NamedTensor> tensors = {{"fc.weight", at::ones({2, 2})}};
  for (const std::map<std::string, std::string>& metadata : {std::map<std::string, std::string>{{"format", "pt"}}, {}}) {
    safetensors::write(weights, HostTensors(tensors).views(), metadata);
    EXPECT_THAT(message_of<NotACheckpoint>([&] { read_checkpoint(weights); }),
                AllOf(HasSubstr(weights.string()), HasSubstr("not a checkpoint"), HasSubstr("model.weights")));
  }
  put_bytes(text, "these are not the weights you are looking for");
  EXPECT_THAT(message_of<DataError>([&] { read_checkpoint(text); }), HasSubstr(text.string()));
  EXPECT_THROW(read_checkpoint(folder / "missing"), DataError);
}

// Also where there is an older one of this format, which would lose what was trained since.
TEST(Checkpoint, OneOfAnEarlierFormatIsRefused) {
  const Folder folder;
  const auto file = checkpoint_file(folder.path(), 20);
  write_checkpoint(checkpoint_file(folder.path(), 10), sample(10));
  const std::vector<NamedTensor> tensors = {{"model.fc.weight", at::ones({2, 2})}};
  const HostTensors host(tensors);
  safetensors::Metadata metadata = pack_metadata({.position = {}, .recipe = "", .network = "mlp"}, host.views());
  safetensors::write(file, host.views(), metadata);
  EXPECT_EQ(read_checkpoint(file).network, "mlp");
  metadata["format"] = "paceline-checkpoint-1";
  metadata["crc32c"] = seal_of(metadata);
  safetensors::write(file, host.views(), metadata);
  testing::internal::CaptureStderr();
  EXPECT_THAT(message_of<OtherFormat>([&] { newest_good_checkpoint(folder.path()); }),
              AllOf(HasSubstr(file.string()), HasSubstr("paceline-checkpoint-1")));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(NewestGood, FallsBackOverDamagedOnesAndSaysSo) {
  const Folder folder;
  for (std::int64_t step : {5, 10, 1'000'000}) write_checkpoint(checkpoint_file(folder.path(), step), sample(step));
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.position.step, 1'000'000);

  const auto damage = [&](std::int64_t step) {
    std::string bytes = bytes_in(checkpoint_file(folder.path(), step));
    bytes.back() ^= 1;
    put_bytes(checkpoint_file(folder.path(), step), bytes);
  };
  damage(1'000'000);
  testing::internal::CaptureStderr();
  const auto [file, checkpoint] = newest_good_checkpoint(folder.path());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(checkpoint.position.step, 10);
  EXPECT_EQ(file, checkpoint_file(folder.path(), 10));
  EXPECT_THAT(log, AllOf(HasSubstr("warning"), HasSubstr("step-0001000000"), HasSubstr("falling back")));

  put_bytes(checkpoint_file(folder.path(), 10), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.position.step, 5);
  damage(5);
  EXPECT_THROW(newest_good_checkpoint(folder.path()), DataError);
  testing::internal::GetCapturedStderr();
}

TEST(NewestGood, OfARunAFolderAFileOrNothing) {
  const Folder folder;
  std::filesystem::create_directories(folder / "checkpoints");
  const auto file = checkpoint_file(folder / "checkpoints", 3);
  write_checkpoint(file, sample(3));
  for (const auto& path : {folder.path(), folder / "checkpoints", file}) EXPECT_EQ(newest_good_checkpoint(path).first, file);
  EXPECT_THAT(message_of<DataError>([&] { newest_good_checkpoint(folder / "nowhere"); }), HasSubstr("nowhere"));
}

TEST(Prune, KeepsTheNewestAndTouchesNothingElse) {
  const Folder folder;
  for (std::int64_t step : {1, 2, 9, 10, 100}) write_checkpoint(checkpoint_file(folder.path(), step), sample(step));
  put_bytes(folder / "best.safetensors", "mine");
  put_bytes(folder / ".step-0000000200.safetensors.123-0.part", "a writer was killed");
  const auto newest = checkpoint_file(folder.path(), 100);
  prune_checkpoints(newest, 2);
  std::set<std::string> left;
  for (const auto& item : std::filesystem::directory_iterator(folder.path())) left.insert(item.path().filename().string());
  EXPECT_THAT(left, testing::ElementsAre("best.safetensors", "step-0000000010.safetensors", "step-0000000100.safetensors"));
  prune_checkpoints(newest, 5);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 2u);
}

TEST(Prune, NeverRemovesTheOneJustWritten) {
  const Folder folder;
  const auto file = [&](std::int64_t step) { return checkpoint_file(folder.path(), step); };
  for (std::int64_t step : {100, 150, 300}) put_bytes(file(step), "");
  prune_checkpoints(file(150), 2);
  EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(file(300), file(150)));
  prune_checkpoints(file(150), 1);
  EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(file(150)));
  prune_checkpoints(file(400), 1);  // which could not be written: the last good one stays
  EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(file(150)));
}

TEST(Prune, ADiskThatFailsEndsNoRun) {
  const Folder folder;
  std::filesystem::create_symlink("checkpoints", folder / "checkpoints");  // a link to itself: nothing can be asked of it
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(prune_checkpoints(checkpoint_file(folder / "checkpoints", 100), 1));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step-0000000100.safetensors stay: "));
}

TEST(ListCheckpoints, SaysWhyItCannotLook) {
  const Folder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  const auto why = [](const std::filesystem::path& path) { return message_of<DataError>([&] { list_checkpoints(path); }); };
  EXPECT_THAT(why(folder / "loop"), AllOf(HasSubstr("loop: "), HasSubstr("Too many levels")));
  EXPECT_THAT(why(folder / std::string(5000, 'x')), HasSubstr("File name too long"));
  EXPECT_TRUE(list_checkpoints(folder / "none").empty());

  const auto run = folder / "run", inside = run / "checkpoints";
  std::filesystem::create_directories(inside);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const bool root = ::geteuid() == 0;  // who may enter everything
  constexpr uid_t kNobody = 65534;
  const auto barred = [&](const std::filesystem::path& place) {
    std::filesystem::permissions(place, std::filesystem::perms::none);
    if (root && ::seteuid(kNobody) != 0) return std::string("no other user");
    const std::string message = why(run);
    if (root && ::seteuid(0) != 0) ADD_FAILURE() << "cannot be root again";
    std::filesystem::permissions(place, std::filesystem::perms::all);
    return message;
  };
  EXPECT_THAT(barred(inside), HasSubstr("run/checkpoints: cannot read the folder: Permission denied"));
  EXPECT_THAT(barred(run), AllOf(HasSubstr("run/checkpoints: "), HasSubstr("Permission denied")));
}

TEST(SetAside, MovesTheLaterOnesEachTimeIntoAFolderOfTheirOwn) {
  const Folder folder;
  const auto file = [&](std::int64_t step) { return checkpoint_file(folder.path(), step); };
  for (const char* name : {"aside-1", "aside-2"}) {
    for (std::int64_t step : {100, 200, 300}) put_bytes(file(step), name);
    EXPECT_EQ(set_aside_behind(100, folder.path()), folder / name);
    EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(file(100)));
    EXPECT_EQ(list_checkpoints(folder / name).size(), 2u) << "they can still be named";
    EXPECT_EQ(bytes_in(checkpoint_file(folder / name, 300)), name);
  }
  EXPECT_EQ(set_aside_behind(100, folder.path()), std::nullopt);
  EXPECT_EQ(set_aside_behind(0, folder / "nowhere"), std::nullopt);
}

TEST(Checkpoint, NamesSayNothingOfTheNumberOfWorkers) {
  const Folder folder;
  Recipe recipe = tiny_recipe();
  recipe.optim.name = "adam";
  recipe.train.steps = 1;
  Session run(recipe);
  run.to_end(folder.path());
  std::set<std::string> expected, actual;
  for (const tensor::Entry& parameter : run.trainer->module().arena().entries()) {
    expected.insert("model." + parameter.name);
    expected.insert("optim.first_moment." + parameter.name);
    expected.insert("optim.second_moment." + parameter.name);
  }
  for (const NamedTensor& item : newest_good_checkpoint(folder.path()).second.tensors) actual.insert(item.name);
  EXPECT_EQ(actual, expected);
}

TEST(StateHash, ChangesWithAnyValueNameOrShape) {
  Checkpoint checkpoint = sample();
  const std::string hash = state_hash(checkpoint.tensors);
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash, state_hash(sample().tensors));
  for (NamedTensor& item : checkpoint.tensors) {
    for (std::int64_t i = 0; i < item.tensor.numel(); ++i) {
      const at::Tensor value = item.tensor.reshape({-1})[i], before = value.clone();
      value.add_(1);
      EXPECT_NE(state_hash(checkpoint.tensors), hash) << item.name << " " << i;
      value.copy_(before);
    }
    std::swap(item.name[0], item.name[1]);
    EXPECT_NE(state_hash(checkpoint.tensors), hash);
    std::swap(item.name[0], item.name[1]);
  }
  checkpoint.tensors[0].tensor = checkpoint.tensors[0].tensor.reshape({3, 2});
  EXPECT_NE(state_hash(checkpoint.tensors), hash);
}

TEST(StateHash, DoesNotDependOnTheLayoutInMemory) {
  const at::Tensor plain = at::arange(2 * 3 * 4 * 5, at::kFloat).reshape({2, 3, 4, 5});
  const std::vector<NamedTensor> a = {{"w", plain}}, b = {{"w", plain.contiguous(at::MemoryFormat::ChannelsLast)}};
  EXPECT_EQ(state_hash(a), state_hash(b));
}

class OtherRecipe : public testing::Test {
 protected:
  OtherRecipe() {
    recipe.train.steps = 1;
    Session(recipe).to_end(folder.path());
  }
  /// Resumes the perceptron's checkpoint with another recipe and returns what it is told.
  std::string resume_with(const std::function<void(Recipe&)>& change) {
    Recipe other = recipe;
    change(other);
    Session run(other);
    return message_of<ConfigError>([&] { run.resume(folder.path()); });
  }
  Recipe recipe = tiny_recipe();
  Folder folder;
};

TEST_F(OtherRecipe, ShapesAreNamed) {
  EXPECT_THAT(resume_with([](Recipe& r) { r.model.hidden = {24}; }),
              AllOf(HasSubstr("'model.fc1.weight' has shape 16x64, expected 24x64"), HasSubstr("'model.fc2.weight'")));
}

TEST_F(OtherRecipe, NamesAreNamed) {
  const std::string message = resume_with([](Recipe& r) { r.model.hidden = {16, 16}; });
  EXPECT_THAT(message, AllOf(HasSubstr("'model.fc3.weight' is missing"), HasSubstr(folder.path().string())));
  EXPECT_THAT(resume_with([](Recipe& r) { r.model.hidden = {8, 8, 8}; }), HasSubstr("more"));
}

TEST_F(OtherRecipe, AnotherOptimizerIsToo) {
  EXPECT_THAT(resume_with([](Recipe& r) { r.optim.name = "adam"; }), HasSubstr("no 'optim.first_moment.fc1.weight'"));
}

TEST_F(OtherRecipe, AnotherOrderOfTheDataIsRefusedInsideAnEpoch) {
  EXPECT_THAT(resume_with([](Recipe& r) { r.data.batch = 12; }),
              AllOf(HasSubstr("behind batch 1 of epoch 1"), HasSubstr("data.batch=16"), HasSubstr("data.batch=12")));
  EXPECT_THAT(resume_with([](Recipe& r) { r.schedule.batch_milestones = {0}; }), HasSubstr("data.batch=32"));
  EXPECT_THAT(resume_with([](Recipe& r) { r.data.train_samples = 48; }), HasSubstr("data.train_samples=48"));
  EXPECT_THAT(resume_with([](Recipe& r) { r.train.seed = 5; }), HasSubstr("train.seed=5"));
}

TEST_F(OtherRecipe, AnotherBatchIsFineInsideAnEpochWhereItFits) {
  recipe.data.batch = 8, recipe.train.steps = 0, recipe.train.epochs = 1;
  const observe::RunEnded ended = Session(recipe).resume(folder.path()).to_end(folder.path());
  EXPECT_EQ(ended.steps, 1 + 2 * (kStepsPerEpoch - 1));
  EXPECT_EQ(ended.samples, 16 * kStepsPerEpoch);
}

TEST_F(OtherRecipe, AnotherBatchIsFineFromTheEndOfAnEpochOn) {
  recipe.train.steps = 0;
  recipe.train.epochs = 1;
  Session(recipe).to_end(folder.path());
  recipe.data.batch = 32;
  recipe.train.epochs = 2;
  EXPECT_EQ(Session(recipe).resume(folder.path()).to_end(folder.path()).steps, kStepsPerEpoch + kStepsPerEpoch / 2);
}

TEST(Restore, NamesWhatIsTooMuch) {
  const std::vector<NamedTensor> saved = {{"a", at::ones({2})}, {"b", at::ones({2})}}, targets = {{"a", at::zeros({2})}};
  EXPECT_THAT(message_of<ConfigError>([&] { restore(saved, targets, "file"); }),
              AllOf(HasSubstr("file"), HasSubstr("'b' is not part of this model")));
  EXPECT_EQ(targets[0].tensor.sum().item<double>(), 0) << "nothing is copied where something does not fit";
}

}  // namespace
}  // namespace paceline::train

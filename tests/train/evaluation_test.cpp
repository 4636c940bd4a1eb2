// Evaluations come after the epoch's checkpoint: whatever goes wrong there, or cuts them short, costs no epoch, and a resumed run makes up
// for them.
#include <array>
#include <cmath>
#include <thread>

#include "central_runs.h"
#include "paceline/comm/engine.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Test data with somebody who looks at each sample that is read, and may change it.
class Watched final : public data::Dataset {
 public:
  using Look = std::function<void(std::int64_t read, float& first)>;  // how many were read before; the sample's first value
  Watched(std::shared_ptr<const data::Dataset> sound, Look look) : sound_(std::move(sound)), look_(std::move(look)) {}
  const data::Info& info() const override { return sound_->info(); }
  std::int64_t size() const override { return sound_->size(); }
  void prepare(data::Batch& batch, std::int64_t count) const override { sound_->prepare(batch, count); }
  void read(std::int64_t index, RandomStream* random, data::Batch& batch, std::int64_t slot) const override {
    sound_->read(index, random, batch, slot);
    look_(read_++, batch.inputs[static_cast<std::size_t>(slot * (std::ssize(batch.inputs) / batch.count))]);
  }

 private:
  std::shared_ptr<const data::Dataset> sound_;
  Look look_;
  mutable std::int64_t read_ = 0;
};

/// What a run told of its evaluations.
using Evaluations = std::vector<std::tuple<std::int64_t, double, double>>;

std::unique_ptr<observe::Listener> collect(Evaluations& into) {
  return std::make_unique<On<observe::Evaluated>>([&into](const observe::Evaluated& e) { into.emplace_back(e.epoch, e.loss, e.accuracy); });
}

/// A trainer by itself on test data that is watched.
observe::RunEnded run_watched(const Recipe& recipe, const std::filesystem::path& folder, std::atomic<bool>& stop, Evaluations& evaluations,
                              Watched::Look look) {
  Datasets datasets = make_datasets(recipe);
  datasets.test = std::make_unique<Watched>(std::move(datasets.test), std::move(look));
  observe::Bus bus;
  bus.add(collect(evaluations));
  const SteadyClock clock;
  std::optional<FoundCheckpoint> from;
  if (!list_checkpoints(folder).empty()) from = newest_good_checkpoint(folder);
  Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .datasets = &datasets, .from = from ? &*from : nullptr});
  return trainer.run(folder);
}

Recipe watched_recipe() {
  Recipe recipe = tiny_recipe();
  recipe.data.residency = "host";
  return recipe;
}

void look_away(std::int64_t, float&) {}

TEST(Evaluation, ASampleThatCannotBeReadCostsNoEpoch) {
  const Recipe recipe = watched_recipe();
  std::atomic<bool> stop = false;
  Evaluations expected, told;
  const Folder whole, folder;
  const auto unbroken = run_watched(recipe, whole.path(), stop, expected, look_away);
  const auto damaged = [](std::int64_t, float&) { throw DataError("val/cat.jpg", "is damaged"); };
  EXPECT_THAT(message_of<DataError>([&] { run_watched(recipe, folder.path(), stop, told, damaged); }), HasSubstr("val/cat.jpg"));
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(checkpoint_file(folder / "checkpoints", kStepsPerEpoch)));

  const auto resumed = run_watched(recipe, folder.path(), stop, told, look_away);
  EXPECT_EQ(resumed.state_hash, unbroken.state_hash);
  EXPECT_EQ(resumed.test_accuracy, unbroken.test_accuracy);
  EXPECT_EQ(told, expected);
}

TEST(Evaluation, IsCutShortByAStop) {
  const Recipe recipe = watched_recipe();
  std::atomic<bool> stop = false;
  Evaluations expected, told;
  const Folder whole, folder;
  const auto unbroken = run_watched(recipe, whole.path(), stop, expected, look_away);
  for (std::int64_t epoch = 1; epoch <= kEpochs; ++epoch) {                      // the last one too
    const std::int64_t made_up_for = epoch == 1 ? 0 : recipe.data.test_samples;  // that of the epoch before comes first
    std::int64_t read = 0;
    const auto stopped = run_watched(recipe, folder.path(), stop, told, [&](std::int64_t before, float&) {
      read = before + 1;
      if (before >= made_up_for) stop = true;
    });
    EXPECT_EQ(stopped.stopped, "on request");
    EXPECT_EQ(stopped.steps, epoch * kStepsPerEpoch);
    EXPECT_EQ(read - made_up_for, recipe.data.batch) << "not one batch more";
    EXPECT_EQ(std::ssize(told), epoch - 1);
    stop = false;
  }
  const auto resumed = run_watched(recipe, folder.path(), stop, told, look_away);
  EXPECT_TRUE(resumed.stopped.empty());
  EXPECT_EQ(resumed.state_hash, unbroken.state_hash);
  EXPECT_EQ(resumed.test_accuracy, unbroken.test_accuracy);
  EXPECT_EQ(told, expected);
}

TEST(Evaluation, ACheckpointWhoseTestLossIsNoNumberIsNotKeptAsGood) {
  Recipe recipe = watched_recipe();
  recipe.train.keep = 1;
  std::atomic<bool> stop = false;
  Evaluations told;
  const Folder folder;
  const auto spoil = [&](std::int64_t before, float& first) { first = before < recipe.data.test_samples ? first : NAN; };
  const auto file = [&](std::int64_t step) { return checkpoint_file(folder / "checkpoints", step); };
  EXPECT_THAT(message_of<Diverged>([&] { run_watched(recipe, folder.path(), stop, told, spoil); }),
              AllOf(HasSubstr("the test loss is nan after step 12"), HasSubstr(file(kStepsPerEpoch).string()),
                    HasSubstr("that of step 12, which is not finite, was moved to " + (folder / "checkpoints" / "aside-1").string())));
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(file(kStepsPerEpoch)));
}

TEST(Evaluation, WaitsForAWorkerWhoTakesLongerThanTheDeadline) {
  Recipe recipe = watched_recipe();
  recipe.train.steps = 1;
  recipe.parallel.workers = 2, recipe.comm.deadline_s = 0.3;
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  auto comms = comm::local_group(2, recipe.comm);
  const Folder folder;
  std::array<std::string, 2> messages;
  const auto work = [&](std::size_t rank) {
    const std::int64_t share = recipe.data.test_samples / 2;
    Datasets datasets = make_datasets(recipe);
    datasets.test = std::make_unique<Watched>(std::move(datasets.test), [&](std::int64_t before, float& first) {
      if (rank == 0) first = NAN;  // so that each then looks for the fault, and this one finds it at once
      else if (before % share == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    });
    Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .comm = comms[rank].get(), .datasets = &datasets});
    messages[rank] = message_of<Error>([&] { trainer.run(rank == 0 ? folder.path() : std::filesystem::path()); });
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (const std::string& message : messages) EXPECT_THAT(message, AllOf(HasSubstr("the test loss is nan"), HasSubstr("the batch itself")));
}

struct Way {
  const char *strategy, *executor;
  std::int64_t workers;
};

TEST(Evaluation, ARunThatIsStoppedBeforeItEndsAsOneThatWasNot) {
  for (const Way& way : {Way{"single", "auto", 1}, {"allreduce", "auto", 2}, {"local_sgd", "auto", 2}, {"lc_asgd", "virtual", 3}}) {
    Recipe recipe = recipe_of(way.strategy, way.executor, way.workers);
    Evaluations expected, told;
    const auto run = [&](const std::filesystem::path& folder, Evaluations& evaluations, bool resume, auto&& add) {
      observe::Bus bus;
      const SteadyClock clock;
      std::atomic<bool> stop = false;
      bus.add(collect(evaluations));
      add(bus, stop);
      std::optional<FoundCheckpoint> from;
      if (resume) from = newest_good_checkpoint(folder);
      return Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .from = from ? &*from : nullptr}).run(folder);
    };
    const auto nothing = [](observe::Bus&, std::atomic<bool>&) {};
    const Folder whole, folder;
    const auto unbroken = run(whole.path(), expected, false, nothing);
    const std::int64_t steps = unbroken.steps / recipe.train.epochs;
    const auto at_the_last_step = [&](observe::Bus& bus, std::atomic<bool>& stop) { bus.add(std::make_unique<StopAfter>(steps, stop)); };
    const auto later = [&](observe::Bus& bus, std::atomic<bool>& stop) {  // no worker hears of it before the evaluation
      bus.add(std::make_unique<On<observe::EpochDone>>([&](const observe::EpochDone&) { stop = true; }));
    };
    EXPECT_EQ(run(folder.path(), told, false, at_the_last_step).stopped, "on request") << way.strategy;
    EXPECT_TRUE(told.empty()) << way.strategy;
    EXPECT_EQ(run(folder.path(), told, true, later).stopped, "on request") << way.strategy;
    const auto resumed = run(folder.path(), told, true, nothing);
    EXPECT_EQ(resumed.stopped, "") << way.strategy;
    EXPECT_EQ(resumed.steps, unbroken.steps) << way.strategy;
    EXPECT_EQ(resumed.state_hash, unbroken.state_hash) << way.strategy;
    EXPECT_EQ(told, expected) << way.strategy;
  }
}

}  // namespace
}  // namespace paceline::train

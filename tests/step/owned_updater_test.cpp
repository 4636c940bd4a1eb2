// An optimizer whose state is shared out among ranks: the same update, the same state in a checkpoint, and memory for a share alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/step/updater.h"

namespace paceline::step {
namespace {

constexpr int kRanks = 3;
const std::vector<tensor::Spec> kSpecs = {
    {"conv", {5, 2, 3, 3}}, {"bias", {5}, false}, {"one", {}, false}, {"wide", {1, 50}}, {"fc", {7, 11}}};

tensor::Arena make_arena(bool channels_last = false) {
  tensor::Arena::Options options;
  options.channels_last = channels_last;
  tensor::Arena arena(kSpecs, options);
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const auto values = [&](double seed) {
      return (at::arange(arena.parameter(i).numel(), at::kDouble) + seed).sin().reshape(kSpecs[i].shape);
    };
    arena.parameter(i).copy_(values(static_cast<double>(i)));
    arena.gradient(i).copy_(values(100 + static_cast<double>(i)));
  }
  return arena;
}

/// Parts that are cut in the middle of rows.
tensor::Owners uneven(std::int64_t length, std::int64_t shift) {
  return tensor::Owners(
      std::vector<tensor::OwnedRange>{{0, 40 + shift, 0}, {40 + shift, 150 + shift, 2}, {150 + shift, 220, 1}, {220, length, 0}});
}

/// Calls body(rank's communicator) in a thread each.
void on_ranks(const std::function<void(comm::Communicator&)>& body) {
  auto group = comm::local_group(kRanks);
  std::vector<std::thread> threads;
  for (auto& comm : group) threads.emplace_back([&body, &comm] { body(*comm); });
  for (std::thread& thread : threads) thread.join();
}

void make_steps(Updater& updater, const tensor::Arena& arena, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    updater.begin_step({.rate = 0.01f, .step = step});
    updater.update(0, arena.length());
  }
}

/// All elements of the arena from those who own them.
at::Tensor assembled(const std::vector<at::Tensor>& parameters, const tensor::Owners& owners) {
  at::Tensor whole = parameters[0].clone();
  for (const tensor::OwnedRange& range : owners.ranges())
    whole.narrow(0, range.begin, range.count())
        .copy_(parameters[static_cast<std::size_t>(range.owner)].narrow(0, range.begin, range.count()));
  return whole;
}

class OwnedUpdater : public testing::TestWithParam<bool> {};

TEST_P(OwnedUpdater, UpdatesWhatItOwnsWithTheSameBitsAndMovesItsState) {
  tensor::Arena whole = make_arena(GetParam());
  Updater all(whole, {.name = "adam"});
  make_steps(all, whole, 1, 4);
  std::vector<at::Tensor> parameters(kRanks);
  const tensor::Owners first = uneven(whole.length(), 0), second = uneven(whole.length(), 13);
  on_ranks([&](comm::Communicator& comm) {
    tensor::Arena arena = make_arena(GetParam());
    arena.set_owners(tensor::Role::moment, first);
    const comm::Mesh mesh(comm);
    Updater updater(arena, {.name = "adam"}, &mesh);
    EXPECT_LT(updater.buffers()[0].numel(), arena.length() / 2 + 2 * tensor::Arena::kAlignment) << "of what it owns alone";
    make_steps(updater, arena, 1, 2);
    // Whoever updates an element next needs its parameter, which the owner hands round.
    parameters[static_cast<std::size_t>(comm.rank())] = arena.parameters();
    comm.run(comm::barrier());
    const at::Tensor now = assembled(parameters, first);
    comm.run(comm::barrier());
    arena.parameters().copy_(now);
    arena.set_owners(tensor::Role::moment, second);
    updater.follow_owners();
    make_steps(updater, arena, 3, 4);
    parameters[static_cast<std::size_t>(comm.rank())] = arena.parameters().clone();
  });
  EXPECT_TRUE(at::equal(assembled(parameters, second), whole.parameters()));
}

TEST_P(OwnedUpdater, ShowsWholeRowsThatAnyOtherOwnersRead) {
  tensor::Arena whole = make_arena(GetParam());
  Updater all(whole, {.name = "adam"});
  make_steps(all, whole, 1, 2);
  std::vector<std::vector<NamedTensor>> shown(kRanks);
  on_ranks([&](comm::Communicator& comm) {
    tensor::Arena arena = make_arena(GetParam());
    arena.set_owners(tensor::Role::moment, uneven(arena.length(), 0));
    const comm::Mesh mesh(comm);
    Updater updater(arena, {.name = "adam"}, &mesh);
    make_steps(updater, arena, 1, 2);
    auto& mine = shown[static_cast<std::size_t>(comm.rank())] = updater.state();
    for (NamedTensor& item : mine) item.tensor = item.tensor.contiguous().clone();
  });
  std::vector<NamedTensor> merged;
  for (const auto& mine : shown) {
    std::vector<std::string> names;
    for (const NamedTensor& item : mine)
      if (names.empty() || names.back() != item.name) names.push_back(item.name);
    EXPECT_EQ(names.size(), 2 * kSpecs.size()) << "every worker shows every name, in order";
    merged.insert(merged.end(), mine.begin(), mine.end());
  }
  for (const NamedTensor& item : all.state()) {
    const at::Tensor found = saved_or_none(merged, item.name);
    ASSERT_EQ(found.sizes(), item.tensor.sizes()) << item.name;
    EXPECT_TRUE(at::equal(found, item.tensor)) << item.name;
  }
  // Into other owners, and into one who has it all.
  tensor::Arena again = make_arena(GetParam());
  Updater alone(again, {.name = "adam"});
  alone.load(merged);
  for (std::size_t i = 0; i < alone.buffers().size(); ++i) EXPECT_TRUE(at::equal(alone.buffers()[i], all.buffers()[i]));
  on_ranks([&](comm::Communicator& comm) {
    tensor::Arena arena = make_arena(!GetParam());  // laid out otherwise
    arena.set_owners(tensor::Role::moment, uneven(arena.length(), 7));
    const comm::Mesh mesh(comm);
    Updater updater(arena, {.name = "adam"}, &mesh);
    updater.load(merged);
    arena.set_owners(tensor::Role::moment, tensor::Owners(arena.length()));
    updater.follow_owners();
    for (const NamedTensor& item : updater.state()) EXPECT_TRUE(at::equal(item.tensor, saved_or_none(merged, item.name))) << item.name;
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, OwnedUpdater, testing::Values(false, true),
                         [](const auto& layout) { return layout.param ? "ChannelsLast" : "Plain"; });

TEST(SavedRows, AreFoundInPiecesAndMissedWhereTheyAreNot) {
  const at::Tensor all = at::arange(12, at::kFloat).reshape({6, 2});
  std::vector<NamedTensor> state = {{"other", all}, rows_of("x", all.narrow(0, 4, 2), 4, 6), rows_of("x", all.narrow(0, 0, 4), 0, 6)};
  EXPECT_TRUE(at::equal(saved_or_none(state, "x"), all));
  EXPECT_TRUE(at::equal(saved_rows(state, "x", 3, 5), all.narrow(0, 3, 2)));
  EXPECT_EQ(saved_rows(state, "x", 1, 3).data_ptr(), all.narrow(0, 1, 2).data_ptr()) << "no copy where they lie in one piece";
  EXPECT_EQ(saved_shape(state, "x"), (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(saved_shape(state, "y"), std::nullopt);
  state.pop_back();
  EXPECT_THROW(saved_rows(state, "x", 3, 5), ConfigError);
  EXPECT_TRUE(at::equal(saved_rows(state, "x", 4, 6), all.narrow(0, 4, 2)));
}

}  // namespace
}  // namespace paceline::step

// Checkpoints do not know the mesh: written under one, read under any other, with the same hash. Ranks are threads that hold what a mesh
// gives them: slices on the tensor axis, units on the pipeline axis, ranges of ZeRO's on the data axis.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/step/boxes.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/checkpointer.h"
#include "paceline/train/holdings.h"
#include "runs.h"

namespace paceline::train::mesh_checkpoint_test {
namespace {

struct Layout {
  int data = 1, pipeline = 1, tensor = 1;
  bool zero = false;  // each data-parallel rank holds a range of everything
  bool channels_last = false;
  bool spread = false;  // slices lie on the data axis instead of the tensor axis: nobody else has them

  int ranks() const { return data * pipeline * tensor; }
};

const std::vector<Layout> kLayouts = {{},
                                      {.data = 2},
                                      {.data = 2, .zero = true},
                                      {.data = 3, .zero = true, .channels_last = true},
                                      {.tensor = 2},
                                      {.pipeline = 3},
                                      {.pipeline = 2, .tensor = 2, .channels_last = true},
                                      {.data = 2, .pipeline = 2, .tensor = 2, .zero = true},
                                      {.data = 2, .spread = true},
                                      {.data = 2, .pipeline = 2, .tensor = 2, .spread = true}};

std::string named(const Layout& layout) {
  return fmt::format("data={} pipeline={} tensor={} zero={} spread={}", layout.data, layout.pipeline, layout.tensor, layout.zero,
                     layout.spread);
}

/// A tensor of the whole network, and how tensor parallelism slices it.
struct Whole {
  std::string name;
  std::vector<std::int64_t> shape;
  int unit = 0;
  int dim = -1;           // sliced along it; -1: all ranks have all of it
  std::int64_t runs = 1;  // query, key and value are three

  at::Tensor values(double section) const {
    const double start = 1000 * section + 100 * unit + static_cast<double>(name.size());
    return at::arange(at::empty(shape).numel(), at::kFloat).add_(start).reshape(shape);
  }
  std::optional<tensor::Slice> slice(int rank, int ranks) const {
    if (dim < 0 || ranks == 1) return std::nullopt;
    tensor::Slice slice{.dim = dim, .all = shape[static_cast<std::size_t>(dim)], .runs = {}};
    const std::int64_t run = slice.all / runs, part = run / ranks;
    for (std::int64_t i = 0; i < runs; ++i) slice.runs.push_back({i * run + rank * part, part});
    return slice;
  }
};

const std::vector<Whole> kNetwork = {
    {"embedding", {10, 4}, 0}, {"qkv.weight", {12, 4}, 0, 0, 3}, {"qkv.bias", {12}, 0, 0, 3},         {"out.weight", {4, 8}, 1, 1},
    {"norm", {5}, 1},          {"temperature", {}, 1},           {"conv.weight", {4, 2, 3, 3}, 2, 1}, {"head", {7, 3}, 2}};
constexpr const char* kSections[] = {"model.", "optim.momentum."};

/// What a rank of a mesh holds.
class Rank {
 public:
  Rank(const Layout& layout, int rank, bool filled) : data_(rank / layout.tensor % layout.data), arena_(make(layout, rank)) {
    std::vector<tensor::Listed> listing;
    std::size_t entry = 0;
    for (const Whole& whole : kNetwork)
      listing.push_back(
          {whole.name, whole.shape, whole.unit % layout.pipeline == stage(layout, rank) ? std::optional(entry++) : std::nullopt});
    arena_.set_listing(listing);
    std::vector<tensor::OwnedRange> ranges;
    for (int i = 0; i < layout.data; ++i) ranges.push_back({arena_.length() * i / layout.data, arena_.length() * (i + 1) / layout.data, i});
    if (layout.zero)
      for (const tensor::Role role : {tensor::Role::parameter, tensor::Role::moment}) arena_.set_owners(role, tensor::Owners(ranges));
    for (double section = 0; section < 2; ++section) {
      at::Tensor flat = at::zeros({arena_.length()});
      for (const Whole& whole : kNetwork)
        for (const tensor::Listed& listed : listing)
          if (filled && listed.name == whole.name && listed.entry) {
            const auto& slice = arena_.entries()[*listed.entry].slice;
            arena_.view(flat, *listed.entry).copy_(slice ? tensor::cut(whole.values(section), *slice) : whole.values(section));
          }
      const tensor::Shard shard = arena_.shard(tensor::Role::moment, data_);
      flats_.push_back(at::zeros({shard.length()}));
      for (const auto& held : shard.held())
        flats_.back().narrow(0, held.place, held.end - held.begin).copy_(flat.narrow(0, held.begin, held.end - held.begin));
    }
  }

  std::vector<NamedTensor> state() const {
    std::vector<NamedTensor> state;
    const tensor::Shard shard = arena_.shard(tensor::Role::moment, data_);
    for (std::size_t section = 0; section < 2; ++section) step::show(state, arena_, kSections[section], flats_[section], shard.held());
    return state;
  }

  bool same_as(const Rank& other) const { return at::equal(flats_[0], other.flats_[0]) && at::equal(flats_[1], other.flats_[1]); }

 private:
  static int stage(const Layout& layout, int rank) { return rank / layout.tensor / layout.data; }

  static tensor::Arena make(const Layout& layout, int rank) {
    std::vector<tensor::Spec> specs;
    for (const Whole& whole : kNetwork) {
      if (whole.unit % layout.pipeline != stage(layout, rank)) continue;
      auto slice =
          layout.spread ? whole.slice(rank / layout.tensor % layout.data, layout.data) : whole.slice(rank % layout.tensor, layout.tensor);
      if (slice && layout.spread) slice->across = tensor::Across::data;
      std::vector<std::int64_t> shape = whole.shape;
      if (slice) shape[static_cast<std::size_t>(whole.dim)] = slice->count();
      specs.push_back({whole.name, shape, true, slice});
    }
    tensor::Arena::Options options;
    options.channels_last = layout.channels_last;
    return tensor::Arena(specs, options);
  }

  int data_;
  tensor::Arena arena_;
  std::vector<at::Tensor> flats_;  // by section: what this rank holds
};

void on_ranks(const Layout& layout, const std::function<void(comm::Communicator&, const Rank&)>& body) {
  auto group = comm::local_group(layout.ranks());
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&] {
      const Rank rank(layout, comm->rank(), /*filled=*/true);
      body(*comm, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

void write(const Layout& layout, const std::filesystem::path& run) {
  observe::Bus bus;
  const SteadyClock clock;
  on_ranks(layout, [&](comm::Communicator& comm, const Rank& rank) {
    Checkpointer checkpointer(comm, bus, clock, comm.rank() == 0 ? run : std::filesystem::path(), {});
    CheckpointMetadata metadata;
    metadata.position.step = 1, metadata.recipe = "[train]\n", metadata.network = "mlp";
    checkpointer.begin(metadata, rank.state(), /*good=*/true);
    EXPECT_TRUE(checkpointer.finish());
  });
}

TEST(MeshCheckpoint, IsReadUnderAnyOtherMesh) {
  for (const Layout& writer : kLayouts) {
    const Folder folder;
    write(writer, folder.path());
    const Checkpoint checkpoint = newest_good_checkpoint(folder.path()).second;
    for (const Whole& whole : kNetwork)
      for (double section = 0; section < 2; ++section)
        EXPECT_TRUE(
            at::equal(step::saved_or_none(checkpoint.tensors, kSections[static_cast<int>(section)] + whole.name), whole.values(section)))
            << named(writer) << ' ' << whole.name;
    for (const Layout& reader : kLayouts)
      for (int rank = 0; rank < reader.ranks(); ++rank) {
        const Rank expected(reader, rank, true), read(reader, rank, false);
        restore(checkpoint.tensors, read.state(), "test");
        EXPECT_TRUE(read.same_as(expected)) << named(writer) << " to rank " << rank << " of " << named(reader);
      }
  }
}

TEST(MeshCheckpoint, TheHashIsThatOfTheWholeState) {
  const std::string alone = state_hash(Rank({}, 0, true).state());
  std::vector<NamedTensor> whole;
  for (double section = 0; section < 2; ++section)
    for (const Whole& tensor : kNetwork) whole.push_back({kSections[static_cast<int>(section)] + tensor.name, tensor.values(section)});
  EXPECT_EQ(alone, state_hash(whole));
  for (const Layout& layout : kLayouts) {
    on_ranks(layout,
             [&](comm::Communicator& comm, const Rank& rank) { EXPECT_EQ(state_hash(rank.state(), comm), alone) << named(layout); });
    const Folder folder;
    write(layout, folder.path());
    EXPECT_EQ(state_hash(newest_good_checkpoint(folder.path()).second.tensors), alone) << named(layout);
  }
}

TEST(MeshCheckpoint, WhatSeveralHoldOneOfThemWrites) {
  on_ranks({.data = 2, .pipeline = 2, .tensor = 2}, [&](comm::Communicator& comm, const Rank& rank) {
    const auto holdings = gather_holdings(rank.state(), comm);
    ASSERT_EQ(holdings.size(), 2 * kNetwork.size());
    for (std::size_t i = 0; i < holdings.size(); ++i) {
      const Whole& whole = kNetwork[i % kNetwork.size()];
      EXPECT_EQ(holdings[i].name, kSections[i / kNetwork.size()] + whole.name) << "in the order of the whole network";
      EXPECT_EQ(holdings[i].shape, whole.shape);
      const std::size_t parts = whole.dim < 0 ? 1 : static_cast<std::size_t>(2 * whole.runs);
      ASSERT_EQ(holdings[i].parts.size(), parts) << whole.name;
      for (const HeldPart& part : holdings[i].parts) {
        EXPECT_EQ(part.holders.size(), whole.dim < 0 ? 4u : 2u) << whole.name;
        EXPECT_EQ(part.own.has_value(), part.held_by(comm.rank()));
      }
    }
  });
}

TEST(MeshCheckpoint, NamesThatOnlyOthersShowAreTakenInTheirPlace) {
  auto group = comm::local_group(2);
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&] {
      std::vector<NamedTensor> state = {{"a", at::ones(2)}, {"d", at::ones(1)}};
      if (comm->rank() == 1) state = {{"a", at::ones(2)}, {"b", at::ones(3)}, {"c", at::ones(1)}, {"d", at::ones(1)}};
      const std::vector<NamedTensor> whole = {{"a", at::ones(2)}, {"b", at::ones(3)}, {"c", at::ones(1)}, {"d", at::ones(1)}};
      EXPECT_EQ(state_hash(state, *comm), state_hash(whole));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(MeshCheckpoint, PartsThatDoNotMakeAWholeAreRefused) {
  const auto part = [](std::vector<std::int64_t> first, std::vector<std::int64_t> shape) {
    return HeldPart{std::move(first), std::move(shape), 0, {}, {}};
  };
  const std::vector<std::int64_t> shape = {4, 3};
  EXPECT_TRUE(make_a_whole(shape, std::vector{part({0, 0}, {4, 1}), part({0, 1}, {2, 2}), part({2, 1}, {2, 2})}));
  EXPECT_FALSE(make_a_whole(shape, std::vector{part({0, 0}, {4, 1}), part({0, 1}, {2, 2})})) << "a hole";
  EXPECT_FALSE(make_a_whole(shape, std::vector{part({0, 0}, {4, 2}), part({0, 1}, {4, 1})})) << "they overlap";
  EXPECT_FALSE(make_a_whole(shape, std::vector{part({1, 0}, {4, 3})})) << "beyond the end";
  EXPECT_FALSE(make_a_whole(shape, std::vector{part({0}, {12})}));
  EXPECT_FALSE(make_a_whole(shape, {}));
}

TEST(MeshCheckpoint, AnIndexOfRowsIsStillRead) {
  CheckpointIndex index;
  index.run.recipe = "[train]\n";
  index.shards = {{"a.safetensors", "1", 10}};
  index.tensors = {{"x", {6, 2}, {{0, "x[0:4]", {0, 0}}, {0, "x[4:6]", {4, 0}}}}, {"y", {}, {{0, "y", {}}}}};
  auto json = nlohmann::json::parse(pack_index(index));
  auto tensors = nlohmann::json::parse(json["metadata"]["tensors"].get<std::string>());
  tensors[0][2][0][2] = 0, tensors[0][2][1][2] = 4, tensors[1][2][0][2] = 0;  // as it was written before there were boxes
  json["metadata"]["tensors"] = tensors.dump();
  auto metadata = json["metadata"].get<safetensors::Metadata>();
  json["metadata"]["crc32c"] = seal_of(metadata);
  const CheckpointIndex read = unpack_index("index", json.dump());
  EXPECT_EQ(read.tensors[0].pieces[1].first, (std::vector<std::int64_t>{4, 0}));
  EXPECT_TRUE(read.tensors[1].pieces[0].first.empty());
}

}  // namespace
}  // namespace paceline::train::mesh_checkpoint_test

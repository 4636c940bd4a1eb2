// LARS and LAMB, clipped, where ranks hold pieces of tensors: owned parts along the data axis, slices along both axes. On the CPU, and on a
// GPU that the ranks share.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "../comm/ranks.h"
#include "paceline/step/updater.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {
namespace {

constexpr std::int64_t kSteps = 3;

struct Case {
  std::string optimizer;
  c10::DeviceType device;
};

const std::vector<tensor::Spec> kWhole = {
    {"conv", {5, 2, 3, 3}}, {"bias", {6}, false}, {"fc", {6, 700}}, {"expert", {4, 5}}, {"wide", {1, 50}}};

/// The same with half of "fc" on either tensor rank, and half of "expert" on either data-parallel worker.
std::vector<tensor::Spec> sliced(const comm::Mesh& mesh) {
  std::vector<tensor::Spec> specs = kWhole;
  specs[2].shape = {3, 700}, specs[2].slice = tensor::Slice{.all = 6, .runs = {{3 * mesh.tensor().rank(), 3}}};
  specs[3].shape = {2, 5};
  specs[3].slice = tensor::Slice{.all = 4, .runs = {{2 * mesh.data().rank(), 2}}, .across = tensor::Across::data};
  return specs;
}

at::Tensor values(std::size_t entry, double seed) {
  const at::Tensor ramp = at::arange(at::empty(kWhole[entry].shape).numel(), at::kDouble) + seed + static_cast<double>(entry);
  return ramp.sin().reshape(kWhole[entry].shape);
}

tensor::Arena arena_of(const std::vector<tensor::Spec>& specs, c10::DeviceType device) {
  tensor::Arena::Options options;
  options.tensor = at::TensorOptions(device);
  return tensor::Arena(specs, options);
}

/// Sets each entry to what it holds of the whole tensor.
void fill(const tensor::Arena& arena, const at::Tensor& flat, const std::function<at::Tensor(std::size_t entry)>& whole) {
  for (std::size_t i = 0; i < arena.entries().size(); ++i) {
    const auto& slice = arena.entries()[i].slice;
    arena.view(flat, i).copy_(slice ? cut(whole(i), *slice) : whole(i));
  }
}

/// Two workers own the arena in turn, in parts that end in the middle of rows, but for what each of them has alone.
tensor::Owners owners_of(const tensor::Arena& arena) {
  const auto at = [&](std::size_t entry, std::int64_t element) { return arena.entries()[entry].offset + element; };
  return tensor::Owners(std::vector<tensor::OwnedRange>{{0, at(0, 33), 1},
                                                        {at(0, 33), at(2, 1001), 0},
                                                        {at(2, 1001), at(3, 0), 1},
                                                        {at(3, 0), at(4, 0), tensor::kEverybody},
                                                        {at(4, 0), arena.length(), 0}});
}

void train(Updater& updater, const tensor::Arena& arena) {
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    fill(arena, arena.gradients(), [&](std::size_t i) { return values(i, 100.0 * static_cast<double>(step)); });
    updater.begin_step({.rate = 0.1f, .gradient_scale = 0.5f, .step = step});
    updater.update_all();
  }
}

class NormsOfPieces : public testing::TestWithParam<Case> {};

TEST_P(NormsOfPieces, MakeTheUpdatesOfWholeTensors) {
  const auto& [name, device] = GetParam();
  if (device == c10::kCUDA && !tensor::cuda_available()) GTEST_SKIP() << "no GPU here";
  const optim::OptimConfig config{.name = name, .weight_decay = 0.01, .trust = 0.05, .clip_norm = 0.7};
  const tensor::Arena whole = [&] {
    tensor::Arena arena = arena_of(kWhole, c10::kCPU);
    fill(arena, arena.parameters(), [](std::size_t i) { return values(i, 0); });
    Updater updater(arena, config);
    train(updater, arena);
    return arena;
  }();
  for (const bool owned : {true, false}) {
    const auto problems = comm::play(4, {}, [&](comm::Communicator& comm) {
      const tensor::OwnStream stream(c10::Device(device, device == c10::kCUDA ? 0 : -1));
      const comm::Mesh mesh(comm, {.data = 2, .tensor = 2});
      tensor::Arena arena = arena_of(sliced(mesh), device);
      fill(arena, arena.parameters(), [](std::size_t i) { return values(i, 0); });
      if (owned) arena.set_owners(tensor::Role::moment, owners_of(arena));
      Updater updater(arena, config, &mesh);
      train(updater, arena);
      const at::Tensor expected = at::zeros({arena.length()});
      fill(arena, expected, [&](std::size_t i) { return whole.parameter(i); });
      const at::Tensor found = arena.parameters().cpu();
      for (const tensor::OwnedRange& range : arena.owners(tensor::Role::moment).ranges()) {
        if (!range.held_by(mesh.data().rank())) continue;
        EXPECT_LT((found - expected).narrow(0, range.begin, range.count()).abs().max().item<double>(), 2e-6)
            << "elements from " << range.begin << " to " << range.end << " of rank " << comm.rank();
      }
    });
    for (const std::string& problem : problems) EXPECT_EQ(problem, "") << "owned: " << owned;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, NormsOfPieces,
                         testing::Values(Case{"lars", c10::kCPU}, Case{"lamb", c10::kCPU}, Case{"lars", c10::kCUDA},
                                         Case{"lamb", c10::kCUDA}),
                         [](const auto& test) {
                           return fmt::format("{}_{}", test.param.optimizer, test.param.device == c10::kCUDA ? "gpu" : "cpu");
                         });

}  // namespace
}  // namespace paceline::step

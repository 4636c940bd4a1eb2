// The arena's layout and its views: offsets, zeroed padding, aliasing, the layout of channels last, and where its memory comes from.
#include "paceline/tensor/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>

#include "paceline/base/error.h"

namespace paceline::tensor {
namespace {

const std::vector<Spec> kSpecs = {
    {"conv.weight", {3, 2, 5, 4}, true},                                                  // 120: eight of padding behind it
    {"conv.bias", {3}, false},           {"scalar", {}, false}, {"exact", {4, 4}, true},  // 16: no padding
    {"fc.weight", {5, 7}, true},
};

Arena make(bool channels_last = false, c10::ScalarType type = at::kFloat) {
  Arena::Options options;
  options.tensor = at::TensorOptions().dtype(type);
  options.channels_last = channels_last;
  return Arena(kSpecs, options);
}

/// True where no entry lies.
at::Tensor padding_of(const Arena& arena) {
  at::Tensor padding = at::ones({arena.length()}, at::kBool);
  for (const Entry& entry : arena.entries()) padding.narrow(0, entry.offset, entry.count).zero_();
  return padding;
}

TEST(Arena, EntriesAscendAlignedAndWithoutOverlap) {
  const Arena arena = make();
  ASSERT_EQ(arena.entries().size(), kSpecs.size());
  std::int64_t end = 0, count = 0;
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const Entry& entry = arena.entries()[i];
    EXPECT_EQ(entry.name, kSpecs[i].name);
    EXPECT_EQ(entry.shape, kSpecs[i].shape);
    EXPECT_EQ(entry.decay, kSpecs[i].decay);
    EXPECT_EQ(entry.offset % Arena::kAlignment, 0) << entry.name;
    EXPECT_GE(entry.offset, end) << entry.name;
    EXPECT_LT(entry.offset - end, Arena::kAlignment) << entry.name << ": no more padding than needed";
    end = entry.offset + entry.count;
    count += entry.count;
  }
  EXPECT_EQ(arena.count(), count);
  EXPECT_EQ(arena.count(), 120 + 3 + 1 + 16 + 35);
  EXPECT_EQ(arena.length(), 128 + 16 + 16 + 16 + 48);
  EXPECT_EQ(arena.parameters().numel(), arena.length());
  EXPECT_EQ(arena.gradients().numel(), arena.length());
}

TEST(Arena, PaddingIsZeroAndWritesThroughViewsLeaveItZero) {
  for (const bool channels_last : {false, true}) {
    const Arena arena = make(channels_last);
    EXPECT_EQ(arena.parameters().count_nonzero().item<std::int64_t>(), 0);
    EXPECT_EQ(arena.gradients().count_nonzero().item<std::int64_t>(), 0);
    for (std::size_t i = 0; i < kSpecs.size(); ++i) {
      arena.parameter(i).fill_(1);
      arena.gradient(i).fill_(2);
    }
    const at::Tensor padding = padding_of(arena);
    EXPECT_EQ(padding.sum().item<std::int64_t>(), arena.length() - arena.count());
    for (const at::Tensor& flat : {arena.parameters(), arena.gradients()}) {
      EXPECT_EQ(flat.masked_select(padding).count_nonzero().item<std::int64_t>(), 0);
      EXPECT_EQ(flat.count_nonzero().item<std::int64_t>(), arena.count()) << "the views cover every element that is not padding";
    }
  }
}

TEST(Arena, EachRoleHasItsOwnDtype) {
  Arena::Options options;
  options.tensor = at::kBFloat16;
  EXPECT_EQ(Arena(kSpecs, options).dtype(Role::gradient), at::kBFloat16) << "that of the parameters, unless another is given";
  options.gradient_dtype = at::kFloat;
  const Arena arena(kSpecs, options);
  EXPECT_EQ(arena.parameter(0).scalar_type(), at::kBFloat16);
  EXPECT_EQ(arena.gradient(0).scalar_type(), at::kFloat);
  EXPECT_EQ(arena.gradient(0).sizes(), arena.parameter(0).sizes());
  EXPECT_EQ(arena.gradients().numel(), arena.parameters().numel());
  for (const auto& [role, dtype] : {std::pair{Role::parameter, at::kBFloat16}, {Role::gradient, at::kFloat}, {Role::moment, at::kFloat}})
    EXPECT_EQ(arena.allocate(role, arena.shard(role, 0)).scalar_type(), dtype);
}

TEST(Arena, ViewsAliasTheFlatBuffers) {
  const Arena arena = make();
  arena.parameters().copy_(at::arange(arena.length()));
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const at::Tensor view = arena.parameter(i);
    EXPECT_TRUE(view.is_alias_of(arena.parameters()));
    EXPECT_TRUE(arena.gradient(i).is_alias_of(arena.gradients()));
    EXPECT_EQ(view.sizes().vec(), kSpecs[i].shape);
    EXPECT_EQ(view.flatten()[0].item<float>(), static_cast<float>(arena.entries()[i].offset));
  }
  arena.parameter(3).fill_(-1);
  EXPECT_EQ(arena.parameters()[arena.entries()[3].offset + 15].item<float>(), -1);
}

TEST(Arena, ViewsAnotherBufferOfItsLength) {
  const Arena arena = make();
  const at::Tensor copy = at::arange(arena.length(), at::kBFloat16);
  const at::Tensor view = arena.view(copy, 1);
  EXPECT_EQ(view.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(view.is_alias_of(copy));
  EXPECT_EQ(view[0].item<float>(), 128);
}

TEST(Arena, ChannelsLastViewsHaveTheSameLogicAndAnotherLayout) {
  const Arena plain = make(false), last = make(true);
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const at::Tensor values = at::randn(kSpecs[i].shape);
    plain.parameter(i).copy_(values);
    last.parameter(i).copy_(values);
    EXPECT_TRUE(at::equal(plain.parameter(i), last.parameter(i))) << kSpecs[i].name;
    EXPECT_EQ(plain.entries()[i].offset, last.entries()[i].offset);
  }
  const at::Tensor weight = last.parameter(0);
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(weight.sizes().vec(), kSpecs[0].shape);
  // Memory runs {out, h, w, in}: the second element is the second input channel of the first pixel.
  EXPECT_EQ(last.parameters()[1].item<float>(), weight[0][1][0][0].item<float>());
  EXPECT_EQ(plain.parameters()[1].item<float>(), weight[0][0][0][1].item<float>());
}

TEST(Arena, StatisticsHaveNoGradients) {
  Arena::Options options;
  options.gradients = false;
  EXPECT_FALSE(Arena(kSpecs, options).gradients().defined());
}

TEST(Arena, MayBeEmpty) {
  const Arena arena({}, {});
  EXPECT_EQ(arena.length(), 0);
  EXPECT_EQ(arena.count(), 0);
  EXPECT_EQ(arena.parameters().numel(), 0);
}

TEST(Arena, TakesItsMemoryFromTheAllocatorItIsGiven) {
  std::vector<at::Tensor> handed_out;
  Arena::Options options;
  options.tensor = at::TensorOptions().dtype(at::kDouble);
  options.allocate = [&](std::int64_t elements, const at::TensorOptions& tensor) {
    handed_out.push_back(at::zeros({elements}, tensor));
    return handed_out.back();
  };
  const Arena arena(kSpecs, options);
  ASSERT_EQ(handed_out.size(), 2u);
  EXPECT_TRUE(arena.parameters().is_same(handed_out[0]));
  EXPECT_TRUE(arena.gradients().is_same(handed_out[1]));
  EXPECT_EQ(arena.parameter(0).scalar_type(), at::kDouble);
}

TEST(AllocatePages, GivesZeroesInSmallAndLargeAmounts) {
  constexpr std::int64_t kLarge = (std::int64_t{2} << 20) / sizeof(float);  // from here on the pages are mapped
  for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, kLarge - 1, kLarge, 2 * kLarge + 3}) {
    const at::Tensor memory = allocate_pages(elements, at::TensorOptions().dtype(at::kFloat));
    ASSERT_EQ(memory.numel(), elements);
    EXPECT_EQ(memory.scalar_type(), at::kFloat);
    EXPECT_EQ(memory.count_nonzero().item<std::int64_t>(), 0);
    memory.fill_(1);  // every page can be written, to its last byte
    EXPECT_EQ(memory.sum(at::kDouble).item<double>(), static_cast<double>(elements));
  }
}

TEST(AllocatePages, UnmapsWithTheLastView) {
  at::Tensor memory = allocate_pages(std::int64_t{4} << 20, at::TensorOptions().dtype(at::kFloat));
  at::Tensor view = memory.narrow(0, 1 << 20, 8);
  void* first_page = memory.data_ptr();
  const auto mapped = [&] {
    unsigned char resident = 0;
    return mincore(first_page, 1, &resident) == 0;
  };
  memory.reset();
  EXPECT_TRUE(mapped()) << "a view keeps the pages";
  view.reset();
  EXPECT_FALSE(mapped());
}

TEST(AllocatePages, RefusesWhatNoMachineHas) {
  EXPECT_THROW(allocate_pages(std::int64_t{1} << 58, at::TensorOptions().dtype(at::kFloat)), ConfigError);
}

}  // namespace
}  // namespace paceline::tensor

// Memory that comes and goes behind addresses that stay: what is counted, what the system sees, and that pages are used again.
#include "paceline/tensor/backing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

namespace paceline::tensor {
namespace {

/// What a kernel that can move pages leaves behind; one that cannot gives everything back.
std::int64_t if_pages_move(std::int64_t pages) { return PagePool::make(2) ? pages : 0; }

std::int64_t pages_of(const Ledger& ledger) { return ledger.bytes() / static_cast<std::int64_t>(page_bytes()); }

/// A tensor of whole pages, as an arena has it, and its elements by page.
struct Flat {
  explicit Flat(std::int64_t pages)
      : page(static_cast<std::int64_t>(page_bytes()) / 4),
        values(map_pages(pages)),
        backing((values.fill_(7), values), Role::gradient, ledger) {}
  static at::Tensor map_pages(std::int64_t pages) {
    const std::size_t bytes = static_cast<std::size_t>(pages) * page_bytes();
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at::from_blob(
        memory, {static_cast<std::int64_t>(bytes / 4)}, [bytes](void* mapped) { munmap(mapped, bytes); }, at::kFloat);
  }
  /// Pages that lie in memory, as the system sees it.
  std::int64_t resident() const {
    std::vector<unsigned char> in_memory(static_cast<std::size_t>(values.numel() / page));
    EXPECT_EQ(mincore(values.data_ptr(), values.nbytes(), in_memory.data()), 0);
    return std::ranges::count_if(in_memory, [](unsigned char there) { return (there & 1) != 0; });
  }
  float at(std::int64_t element) const { return values.data_ptr<float>()[element]; }

  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::int64_t page;
  at::Tensor values;
  Backing backing;
};

TEST(Backing, CountsPagesAndGivesThemBack) {
  Flat flat(8);
  const std::int64_t page = flat.page, bytes = static_cast<std::int64_t>(page_bytes());
  EXPECT_EQ(pages_of(*flat.ledger), 8);
  flat.backing.release(page / 2, 4 * page + 1);  // of the first and the last page a part is needed
  EXPECT_EQ(pages_of(*flat.ledger), 5);
  EXPECT_EQ(flat.resident(), 5);
  EXPECT_EQ(flat.at(page / 2), 7);
  EXPECT_EQ(flat.at(page), 0) << "its page is gone";
  EXPECT_EQ(flat.at(4 * page + 1), 7);
  flat.backing.commit(2 * page, 2 * page + 1);
  EXPECT_EQ(pages_of(*flat.ledger), 6);
  EXPECT_EQ(flat.ledger->peak(Role::gradient), 8 * bytes);
  flat.ledger->reset_peaks();
  flat.backing.commit(0, 8 * page);
  EXPECT_EQ(flat.ledger->peak(), 8 * bytes);
  flat.backing.release(0, 8 * page);
  EXPECT_EQ(flat.resident(), 0);
  EXPECT_EQ(pages_of(*flat.ledger), if_pages_move(3)) << "what the commits brought waits for the next one";
}

TEST(Backing, MovesPagesFromRangeToRange) {
  Flat flat(64);
  const std::int64_t unit = 16 * flat.page;
  flat.backing.release(0, 64 * flat.page);
  EXPECT_EQ(pages_of(*flat.ledger), 0);
  for (int round = 0; round < 3; ++round)
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t begin = i * unit + 3 * i, end = begin + unit - 40 * i;  // of several numbers of pages
      flat.backing.commit(begin, end);
      EXPECT_LE(flat.resident(), 17);
      flat.values.narrow(0, begin, end - begin).fill_(static_cast<double>(10 * round + static_cast<int>(i)));
      EXPECT_EQ(flat.values.narrow(0, begin, end - begin).sum().item<double>(), static_cast<double>((end - begin) * (10 * round + i)));
      flat.backing.release(begin - begin % flat.page, end + flat.page - 1 - (end + flat.page - 1) % flat.page);
      EXPECT_EQ(flat.resident(), 0);
      EXPECT_EQ(flat.at(begin), 0) << "what is not committed reads as zeros";
      flat.backing.commit(begin, begin + 1), flat.backing.release(begin - begin % flat.page, begin - begin % flat.page + flat.page);
      EXPECT_LE(pages_of(*flat.ledger), 17) << "the same pages for all ranges";
    }
}

TEST(Backing, KeepsTwiceTheLargestCommit) {
  Flat flat(64);
  const std::int64_t unit = 16 * flat.page;
  flat.backing.release(0, 64 * flat.page);
  for (std::int64_t i = 0; i < 4; ++i) flat.backing.commit(i * unit, (i + 1) * unit);
  EXPECT_EQ(pages_of(*flat.ledger), 64);
  for (std::int64_t i = 0; i < 4; ++i) flat.backing.release(i * unit, (i + 1) * unit);
  EXPECT_EQ(pages_of(*flat.ledger), if_pages_move(32));
  for (std::int64_t i = 0; i < 4; ++i) flat.backing.commit(i * unit, (i + 1) * unit);
  flat.values.fill_(3);
  EXPECT_EQ(flat.values.sum().item<double>(), 3.0 * static_cast<double>(flat.values.numel()));
}

}  // namespace
}  // namespace paceline::tensor

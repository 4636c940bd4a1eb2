// Memory that comes and goes behind addresses that stay: what is counted, what the system sees, and that pages are used again.
#include "paceline/tensor/backing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>

#include "paceline/base/error.h"

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

/// Takes all mappings that the system lets a process have, but for about `room`: a move of pages needs some.
class Crowd {
 public:
  explicit Crowd(std::int64_t limit) : pages_(2 * static_cast<std::size_t>(limit)) {
    memory_ = static_cast<std::byte*>(mmap(nullptr, pages_ * page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(static_cast<void*>(memory_), MAP_FAILED);
  }
  ~Crowd() { munmap(memory_, pages_ * page_bytes()); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  void leave(std::size_t room) {
    for (std::size_t page = 1; page < pages_ && mprotect(memory_ + page * page_bytes(), page_bytes(), PROT_READ) == 0; page += 2)
      last_ = page;
    for (std::size_t i = 0; i < room / 2; ++i, last_ -= 2) mprotect(memory_ + last_ * page_bytes(), page_bytes(), PROT_NONE);
  }
  void go() { mprotect(memory_, pages_ * page_bytes(), PROT_NONE); }

 private:
  std::size_t pages_, last_ = 0;
  std::byte* memory_;
};

TEST(Backing, ACommitThatFailsLeavesTheRangeAbsent) {
  std::int64_t limit = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit) || limit > 300'000 || !PagePool::make(2))
    GTEST_SKIP() << "pages do not move here, or too many mappings are allowed";
  constexpr std::int64_t kRun = 16, kPages = 3 * kRun;
  Crowd crowd(limit);
  int failed = 0;
  for (std::size_t room = 0; room < 24; room += 6) {
    Flat flat(kPages);
    const auto page = [&](std::int64_t index) { return index * flat.page; };
    // The second and the third run take turns, and the third goes: what is left for the first lies apart in the pool. So it moves page by
    // page, each of which takes a mapping, and one in the middle fails.
    flat.backing.release(0, page(kPages)), flat.backing.commit(0, page(kPages)), flat.backing.release(0, page(kPages));
    for (std::int64_t i = kRun; i < 2 * kRun; ++i)
      flat.backing.commit(page(i), page(i + 1)), flat.backing.commit(page(kRun + i), page(kRun + i + 1));
    flat.backing.release(page(2 * kRun), page(kPages));
    crowd.leave(room);
    bool thrown = false;
    try {
      flat.backing.commit(0, page(kRun));
    } catch (const Error&) {
      thrown = true;
    }
    crowd.go();
    failed += thrown ? 1 : 0;
    EXPECT_EQ(flat.resident(), thrown ? kRun : 2 * kRun) << "room " << room;
    flat.backing.commit(0, page(kPages));
    EXPECT_EQ(flat.resident(), kPages) << "room " << room;
    flat.values.fill_(static_cast<double>(room));
    EXPECT_EQ(flat.values.sum().item<double>(), static_cast<double>(room) * static_cast<double>(flat.values.numel()));
    EXPECT_EQ(pages_of(*flat.ledger), kPages) << "room " << room;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace paceline::tensor

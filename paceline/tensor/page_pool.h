// Pages that move to where memory is needed instead of going back to the system and coming again: moving a page-table entry costs a quarter
// of a fault and of the zeros that come with it, and what lies in the cache stays there.
//
// Every page has a home, a slot in addresses of the pool's own. lend() moves pages from their slots to other addresses, take_back() returns
// them; mremap leaves either side mapped, so an address without a page behind it reads as zeros. What a lent page holds is anything. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace paceline::tensor {

class PagePool {
 public:
  /// With room for `pages`. Nothing where the system cannot move pages so: before Linux 5.7, and in some sandboxes.
  static std::unique_ptr<PagePool> make(std::size_t pages);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// The slots of the pages that lie at `to` from now on, one behind the other: pages that are there, and then new ones. Error where the
  /// system moves no more; then none is lent, though some may be held that were not before.
  std::vector<std::uint32_t> lend(std::byte* to, std::size_t count);
  /// The pages at `from`, which have these slots.
  void take_back(std::byte* from, const std::uint32_t* slots, std::size_t count);

  std::size_t held() const { return held_; }          // pages, lent or not
  std::size_t idle() const { return held_ - lent_; }  // that nobody uses
  /// Gives idle pages back to the system until at most so many are left.
  void shrink(std::size_t idle);

 private:
  enum class State : std::uint8_t { empty, idle, lent };

  PagePool(std::byte* home, std::size_t pages) : home_(home), states_(pages, State::empty) {}
  std::byte* slot(std::size_t index) const;
  bool moves_back_and_forth() const;

  std::byte* home_;
  std::vector<State> states_;  // by slot
  std::size_t held_ = 0, lent_ = 0;
};

std::size_t page_bytes();

}  // namespace paceline::tensor

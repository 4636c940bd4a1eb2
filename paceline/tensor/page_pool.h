// Pages that move to where memory is needed, instead of being returned to the system and faulted in again: moving a page-table entry costs
// a quarter of a page fault with its zeroing, and the cache stays valid.
//
// Every page has a home, a slot in the pool's own addresses. lend() moves pages from their slots to other addresses, take_back() returns
// them; mremap leaves both sides mapped, so an address without a page reads as zeros. A lent page has arbitrary content. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace paceline::tensor {

class PagePool {
 public:
  /// A pool with room for `pages`. Null if the system cannot move pages in this way: before Linux 5.7, and in some sandboxes.
  static std::unique_ptr<PagePool> make(std::size_t pages);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Moves pages to `to`, idle ones first and then new ones, and returns their slots. Error if the system moves no more; then none is lent,
  /// but the pool may hold more pages than before.
  std::vector<std::uint32_t> lend(std::byte* to, std::size_t count);
  /// Takes back the pages at `from`, which have these slots.
  void take_back(std::byte* from, const std::uint32_t* slots, std::size_t count);

  std::size_t held() const { return held_; }          // pages, lent or not
  std::size_t idle() const { return held_ - lent_; }  // not lent
  /// Returns idle pages to the system until at most this many are left.
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

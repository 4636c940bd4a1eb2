// A group of ranks that share memory, as one of them sees it: its block, its place, and how it wakes and waits for the others.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/shared/memory.h"
#include "paceline/comm/transport.h"

namespace paceline::comm::shared {

class Group final : public Waiter {
 public:
  /// `host_ranks[i]` is what the host's memory calls rank i of the group.
  Group(int rank, std::vector<int> host_ranks, std::shared_ptr<HostMemory> host, std::byte* block);
  ~Group() override;

  /// Rings the bells of a larger group, where ranks[i] is rank i of this one: whoever waits in several groups sleeps in one of them.
  void ring_in(const Group& larger, const std::vector<int>& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }
  HostMemory& host() const { return *host_; }
  const std::shared_ptr<HostMemory>& shared_host() const { return host_; }
  const std::vector<int>& host_ranks() const { return host_ranks_; }
  const Block& block() const { return block_; }
  Seat& seat(int rank) const { return block_.seat(rank); }

  /// After something changed in the block: wakes whoever sleeps.
  void ring(int peer) const;
  void ring_all() const;

  int spins() const override { return spins_; }
  std::uint32_t announce() override;
  void sleep(std::uint32_t announced, Nanoseconds at_most) override;
  void retract() override;
  void wake() override;
  std::string gone(int peer) override;

  // Of the collective under way, of which there is one at a time: counters that all ranks advance alike, and lists of addresses, one a
  // rank.
  std::uint64_t turns = 0, phases = 0;
  std::vector<std::byte*> bases;
  std::vector<const void*> ins;
  std::vector<void*> outs, shifted_outs;

 private:
  Seat& bell_of(int peer) const { return *bells_[static_cast<std::size_t>(peer)]; }

  int rank_, size_, spins_;
  std::vector<int> host_ranks_;
  std::shared_ptr<HostMemory> host_;
  Block block_;
  std::vector<Seat*> bells_;  // where each rank sleeps
};

}  // namespace paceline::comm::shared

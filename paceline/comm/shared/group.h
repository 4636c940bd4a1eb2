// A group of ranks that share memory, as one of them sees it: its block, its place, and how it wakes and waits for the others.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/shared/gpu_side.h"
#include "paceline/comm/shared/memory.h"
#include "paceline/comm/shared/mover.h"
#include "paceline/comm/transport.h"

namespace paceline::comm::shared {

class Group final : public Waiter {
 public:
  /// `host_ranks[i]` is the number of the group's rank i in the host's memory; `cores` are those of the host's ranks (World::cores).
  Group(int rank, std::vector<int> host_ranks, int cores, std::shared_ptr<HostMemory> host, std::byte* block,
        std::shared_ptr<const Mover> mover = std::make_shared<Mover>());
  ~Group() override;

  /// Rings the bells of a larger group, where ranks[i] is rank i of this one: a rank that waits in several groups sleeps in one of them.
  void ring_in(const Group& larger, const std::vector<int>& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }
  HostMemory& host() const { return *host_; }
  const Mover& mover() const { return *mover_; }
  const std::shared_ptr<HostMemory>& shared_host() const { return host_; }
  const std::vector<int>& host_ranks() const { return host_ranks_; }
  const Block& block() const { return block_; }
  Seat& seat(int rank) const { return block_.seat(rank); }

  /// Called after something changed in the block: wakes the sleepers.
  void ring(int peer) const;
  void ring_all() const;
  /// Called when the last rank has reached a barrier. Helpers stay asleep if the ranks need all cores and there is no network to serve: a
  /// helper would only keep its rank from computing, so it sleeps until a rank needs it (wake_helpers) or its own rank makes its next call.
  void ring_meeting() const;
  void keep_helpers_awake() { lazy_helpers_ = false; }

  int spins() const override { return spins_; }
  bool has_core_for_helper() const override { return has_core_for_helper_; }
  void announce(Sleeper sleeper) override;
  void retract(Sleeper sleeper) override;
  std::uint32_t bell(Sleeper sleeper) override;
  void sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) override;
  void wake(Sleeper sleeper) override;
  void wake_helpers() override;
  Nanoseconds patience() override { return Nanoseconds::max(); }  // every change rings a bell
  std::string gone(int peer) override;
  void give_up(int culprit) override;
  int culprit_of(int peer) override;

  // State of the one collective in flight: counters that all ranks advance alike, and lists with one address per rank.
  std::uint64_t turns = 0, phases = 0;
  std::vector<std::byte*> bases;
  std::vector<const void*> ins;
  std::vector<void*> outs, shifted_outs;
  /// For collectives on GPU memory.
  GpuSide& gpu() {
    if (!gpu_) gpu_ = std::make_unique<GpuSide>(rank_, size_, block_, *host_);
    return *gpu_;
  }

 private:
  static void ring_if_announced(Bell& bell);
  Seat& where_sleeps(int peer) const { return *sleeping_seats_[static_cast<std::size_t>(peer)]; }
  Bell& own_bell(Sleeper sleeper) const { return where_sleeps(rank_).bells[static_cast<int>(sleeper)]; }

  int rank_, size_, spins_;
  bool has_core_for_helper_, lazy_helpers_;
  std::vector<int> host_ranks_;
  std::shared_ptr<HostMemory> host_;
  std::shared_ptr<const Mover> mover_;
  Block block_;
  std::vector<Seat*> sleeping_seats_;  // by rank
  std::unique_ptr<GpuSide> gpu_;
};

}  // namespace paceline::comm::shared

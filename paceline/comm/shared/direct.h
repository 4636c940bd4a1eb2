// Collectives directly on memory that all ranks can access: the `direct` schedule without its messages. Each rank combines its part from
// all buffers and writes it to its destinations: one pass over memory, no copy.
//
// They run between two barriers: nobody reads a buffer before its owner has arrived, and nobody leaves before the others stopped accessing
// it. Small buffers are copied into slots instead, and every rank computes what it needs itself, which takes a single barrier: the schedule
// of a sum is then that of a short sum. Private buffers are shown to the others window by window. GPU memory takes the same paths;
// gpu_side.h says what its streams and hosts wait for.
//
// Element i is always combined in the order owner, owner + 1, …, where owner is the rank whose part it lies in: the order of the schedule.
#pragma once

#include <span>

#include "paceline/comm/activity.h"
#include "paceline/comm/shared/group.h"

namespace paceline::comm::shared {

class Direct final : public Activity {
 public:
  struct On {
    int first_rank = 0;      // what the communicator calls rank 0 of the group, for messages about who is missing
    bool short_sum = false;  // as in schedule::Problem
  };
  Direct(Group& group, const Operation& operation, std::int64_t sequence, const On& on)
      : group_(group), op_(operation), sequence_(sequence), on_(on) {}

  bool advance() override;
  int waits_for() const override { return waits_for_ < 0 ? -1 : on_.first_rank + waits_for_; }

 private:
  enum class State { arrive, meet, show, meet_shown, meet_used };

  bool proceed();
  bool still_waits();  // for another rank to arrive

  // Barriers.
  void arrive();
  void arrive_on_gpu(Notice& own);
  void meet_on_gpu();
  bool all_arrived();
  bool all_reached();
  bool missing(std::uint64_t (Direct::*progress)(int peer) const, std::uint64_t needed);
  std::uint64_t turn_of(int peer) const { return notice(peer).turn.load(std::memory_order_seq_cst); }
  std::uint64_t phase_of(int peer) const { return group_.seat(peer).phase.load(std::memory_order_seq_cst); }
  void reach_next_phase();
  void check(const Notice& notice, int peer) const;
  /// Throws PeerError if a rank arrived and gave up before the others were done: its memory may be gone.
  void check_presence() const;
  [[noreturn]] void miss(int peer) const;

  // The work between them. `bases[i]` is where element 0 of rank i's buffer lies, or would lie.
  void make_own(std::span<std::byte* const> bases);
  void share_work(schedule::Range range, std::span<std::byte* const> bases);
  void combine_into(schedule::Range range, std::span<std::byte* const> bases, std::span<void* const> outs);
  void gather(schedule::Range range, std::span<std::byte* const> bases);
  void exchange(schedule::Range within_part, std::span<std::byte* const> inputs, std::int64_t stride);

  // Windows of private memory.
  bool next_window();
  void show_window();
  void use_window();
  void fetch_window();
  schedule::Range my_share(schedule::Range range) const;
  schedule::Range my_part() const { return schedule::part(op_.buffer.count, size(), rank()); }
  bool everything_is_shared();
  std::vector<std::byte*> windows() const;

  void copy(void* to_base, const void* from_base, schedule::Range range) const;
  void copy_bytes(void* to, const void* from, std::int64_t bytes) const;
  void end_window() const;  // waits until the GPU no longer uses it
  bool is_small() const;
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool is_root() const { return rank() == op_.root; }
  std::int64_t width() const { return size_of(op_.buffer.dtype); }
  Notice& notice(int rank) const { return group_.seat(rank).notices[turn_ & 1]; }

  Group& group_;
  const Operation op_;
  const std::int64_t sequence_;
  const On on_;
  State state_ = State::arrive;
  std::uint64_t turn_ = 0;
  int waits_for_ = -1;
  bool windowed_ = false;
  schedule::Range window_;  // elements shown now; of every part for all_to_all
};

}  // namespace paceline::comm::shared

#include "paceline/comm/shared/direct.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/comm/gpu.h"

namespace paceline::comm::shared {
namespace {

using Kind = Operation::Kind;
using schedule::Range;

Range intersection(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

bool Direct::advance() {
  if (!op_.buffer.on_gpu) return proceed();
  // The waiting thread looks often. If it called CUDA each time, the launches of the rank that it waits for would contend for CUDA's locks.
  if (still_waits()) return false;
  const gpu::OnDeviceOf device(op_.buffer.data);
  return proceed();
}

bool Direct::still_waits() {
  if (state_ == State::meet) return missing(&Direct::turn_of, turn_);
  return (state_ == State::meet_shown || state_ == State::meet_used) && !all_reached();
}

bool Direct::proceed() {
  while (true) {
    switch (state_) {
      case State::arrive:
        arrive();
        state_ = State::meet;
        break;
      case State::meet: {
        if (!all_arrived()) return false;
        if (op_.kind == Kind::barrier) return true;
        if (!is_small() && everything_is_shared()) check_presence();
        if (op_.buffer.on_gpu) meet_on_gpu();
        auto& bases = group_.bases;
        if (is_small()) {
          for (int i = 0; i < size(); ++i) bases[static_cast<std::size_t>(i)] = group_.block().slot(i, static_cast<int>(turn_ & 1));
          make_own(bases);
          return true;
        }
        windowed_ = !everything_is_shared();
        if (windowed_) {
          state_ = State::show;
          break;
        }
        const bool from_input = op_.kind == Kind::all_to_all;
        for (int i = 0; i < size(); ++i)
          bases[static_cast<std::size_t>(i)] = group_.host().address(from_input ? notice(i).input : notice(i).buffer);
        if (from_input) {
          exchange({0, op_.buffer.count / size()}, bases, op_.buffer.count / size());
        } else {
          share_work({0, op_.buffer.count}, bases);
        }
        if (op_.buffer.on_gpu) group_.gpu().own_marks().used.record(op_.buffer.stream);
        reach_next_phase();
        state_ = State::meet_used;
        break;
      }
      case State::show:
        if (!next_window()) return true;
        show_window();
        end_window();
        reach_next_phase();
        state_ = State::meet_shown;
        break;
      case State::meet_shown:
        if (!all_reached()) return false;
        use_window();
        end_window();
        reach_next_phase();
        state_ = State::meet_used;
        break;
      case State::meet_used:
        if (!all_reached()) return false;
        if (!windowed_) {
          if (op_.buffer.on_gpu) group_.gpu().hold(op_.buffer.stream, &GpuSide::Marks::used);
          return true;
        }
        fetch_window();
        end_window();
        state_ = State::show;
        break;
    }
  }
}

// What a rank brings to the first barrier: its notice and, if the data is small, the data itself in a slot.
void Direct::arrive() {
  turn_ = ++group_.turns;
  Notice& own = notice(rank());
  own.kind = op_.kind, own.dtype = op_.buffer.dtype, own.op = op_.op, own.root = op_.root, own.count = op_.buffer.count,
  own.gpu = op_.buffer.on_gpu ? static_cast<std::int8_t>(gpu::device_of(op_.buffer.data)) : kNoGpu;
  if (is_small()) {
    std::byte* slot = group_.block().slot(rank(), static_cast<int>(turn_ & 1));
    if (op_.kind == Kind::all_to_all) {
      copy(slot, op_.input.data, {0, op_.input.count});
    } else if (op_.kind == Kind::all_gather) {
      copy(slot, op_.buffer.data, my_part());
    } else if (op_.kind != Kind::broadcast || is_root()) {
      copy(slot, op_.buffer.data, {0, op_.buffer.count});
    }
  } else {
    own.buffer = group_.host().locate(op_.buffer.data, op_.buffer.bytes());
    own.input = op_.kind == Kind::all_to_all ? group_.host().locate(op_.input.data, op_.input.bytes()) : own.buffer;
    if (op_.buffer.on_gpu) arrive_on_gpu(own);
  }
  own.turn.store(turn_, std::memory_order_seq_cst);
  if (!missing(&Direct::turn_of, turn_)) group_.ring_meeting();
}

/// Others read a buffer once it is filled: their streams wait for an event, or this host waits here.
void Direct::arrive_on_gpu(Notice& own) {
  GpuSide& gpu = group_.gpu();
  group_.keep_helpers_awake();  // nobody else executes the steps of a collective that was started on a GPU
  if (own.buffer && own.input) {
    gpu.own_marks().filled.record(op_.buffer.stream);
    own.marks = gpu.marks_number();
  } else {
    gpu.show_window();
    gpu::synchronize(op_.buffer.stream);
  }
}

void Direct::meet_on_gpu() {
  GpuSide& gpu = group_.gpu();
  if (everything_is_shared()) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && !gpu.meet(peer, notice(peer), notice(rank()).gpu)) miss(peer);
    gpu.hold(op_.buffer.stream, &GpuSide::Marks::filled);
  } else {
    gpu.open_windows();
  }
}

void Direct::miss(int peer) const { throw PeerError(on_.first_rank + peer, std::string(name_of(op_.kind)), sequence_, std::string(kLeft)); }

// With memory that all ranks can access, no rank is done before the second barrier, so a rank that is gone by now leaves no result.
void Direct::check_presence() const {
  for (int peer = 0; peer < size(); ++peer)
    if (group_.seat(peer).presence.load(std::memory_order_acquire) != Seat::kHere || group_.culprit_of(peer) >= 0) miss(peer);
}

/// Whether some rank has not arrived yet. No rank can continue before all have, so only the last to arrive wakes the others: of ranks that
/// arrive at the same time, at least the one whose number was stored last sees all numbers.
bool Direct::missing(std::uint64_t (Direct::*progress)(int peer) const, std::uint64_t needed) {
  for (int step = 1; step < size(); ++step) {  // every rank looks at its neighbour first, not all at rank 0
    const int peer = (rank() + step) % size();
    if ((this->*progress)(peer) < needed) {
      waits_for_ = peer;
      return true;
    }
  }
  waits_for_ = -1;
  return false;
}

bool Direct::all_arrived() {
  if (missing(&Direct::turn_of, turn_)) return false;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) check(notice(peer), peer);
  return true;
}

// Ranks that call different operations would hang or mix their data: each is told which rank called what.
void Direct::check(const Notice& theirs, int peer) const {
  const Notice& own = notice(rank());
  if (theirs.kind == own.kind && theirs.dtype == own.dtype && theirs.count == own.count && theirs.root == own.root &&
      (theirs.gpu == kNoGpu) == (own.gpu == kNoGpu) && (theirs.op == own.op || !op_.reduces()))
    return;
  Operation other;
  other.kind = theirs.kind, other.op = theirs.op, other.root = theirs.root;
  other.buffer.dtype = theirs.dtype, other.buffer.count = theirs.count;
  throw PeerError(
      on_.first_rank + peer, std::string(name_of(op_.kind)), sequence_,
      fmt::format("rank {} called {} where rank {} called {} (sequence {}); all ranks must call the same collectives in the same order",
                  on_.first_rank + peer, describe(other), on_.first_rank + rank(), describe(op_), sequence_));
}

void Direct::reach_next_phase() {
  group_.seat(rank()).phase.store(++group_.phases, std::memory_order_seq_cst);
  if (all_reached()) group_.ring_meeting();
}

bool Direct::all_reached() { return !missing(&Direct::phase_of, group_.phases); }

bool Direct::everything_is_shared() {
  for (int i = 0; i < size(); ++i)
    if (!notice(i).buffer || !notice(i).input) return false;
  return true;
}

bool Direct::is_small() const {
  const bool fits = !op_.buffer.on_gpu && op_.buffer.bytes() <= kSmall, is_sum = op_.kind == Kind::allreduce || op_.kind == Kind::reduce;
  ensure(fits || !on_.short_sum, "a short sum fits into a slot");
  return is_sum ? on_.short_sum : fits;
}

// Small buffers: every rank reads the slots and computes what it needs.
void Direct::make_own(std::span<std::byte* const> bases) {
  void* own = op_.buffer.data;
  const Range all{0, op_.buffer.count};
  switch (op_.kind) {
    case Kind::allreduce: return combine_into(all, bases, {&own, 1});
    case Kind::reduce: return is_root() ? combine_into(all, bases, {&own, 1}) : void();
    case Kind::broadcast: return is_root() ? void() : copy(own, bases[static_cast<std::size_t>(op_.root)], all);
    case Kind::all_to_all: return exchange({0, op_.buffer.count / size()}, bases, op_.buffer.count / size());
    default: return share_work(all, bases);
  }
}

// Large buffers: the work on a range is divided among the ranks.
void Direct::share_work(Range range, std::span<std::byte* const> bases) {
  void* own = op_.buffer.data;
  auto& outs = group_.outs;
  switch (op_.kind) {
    case Kind::allreduce: std::copy(bases.begin(), bases.end(), outs.begin()); return combine_into(my_share(range), bases, outs);
    case Kind::reduce: {
      void* root = bases[static_cast<std::size_t>(op_.root)];
      return combine_into(my_share(range), bases, {&root, 1});
    }
    case Kind::reduce_scatter: return combine_into(intersection(range, my_part()), bases, {&own, 1});
    case Kind::all_gather: return gather(range, bases);
    case Kind::broadcast:
      for (int peer = 0; peer < size(); ++peer)
        if (peer != op_.root) copy(bases[static_cast<std::size_t>(peer)], bases[static_cast<std::size_t>(op_.root)], my_share(range));
      return;
    default: throw InternalError("not a collective that shares its work");
  }
}

Range Direct::my_share(Range range) const {
  const Range share = schedule::part(range.size(), size(), rank());
  return {range.begin + share.begin, range.begin + share.end};
}

void Direct::combine_into(Range range, std::span<std::byte* const> bases, std::span<void* const> out_bases) {
  const int divisor = op_.op == ReduceOp::mean ? size() : 1;
  auto& ins = group_.ins;
  auto& outs = group_.shifted_outs;
  for (int owner = 0; owner < size(); ++owner) {
    const Range piece = intersection(range, schedule::part(op_.buffer.count, size(), owner));
    if (piece.size() == 0) continue;
    for (int k = 0; k < size(); ++k)
      ins[static_cast<std::size_t>(k)] = bases[static_cast<std::size_t>((owner + k) % size())] + piece.begin * width();
    for (std::size_t k = 0; k < out_bases.size(); ++k) outs[k] = static_cast<std::byte*>(out_bases[k]) + piece.begin * width();
    const auto targets = std::span(outs).first(out_bases.size());
    group_.mover().combine(op_, ins, targets, piece.size(), divisor);
  }
}

void Direct::gather(Range range, std::span<std::byte* const> bases) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    copy(op_.buffer.data, bases[static_cast<std::size_t>(peer)], intersection(range, schedule::part(op_.buffer.count, size(), peer)));
  }
}

// all_to_all: reads our part of every rank's input. `stride` elements lie between two parts of an input.
void Direct::exchange(Range within_part, std::span<std::byte* const> inputs, std::int64_t stride) {
  const std::int64_t part = op_.buffer.count / size();
  if (within_part.size() == 0) return;
  for (int step = 0; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    copy_bytes(static_cast<std::byte*>(op_.buffer.data) + (peer * part + within_part.begin) * width(),
               inputs[static_cast<std::size_t>(peer)] + (rank() * stride) * width(),
               static_cast<std::size_t>(within_part.size() * width()));
  }
}

bool Direct::next_window() {
  const bool by_part = op_.kind == Kind::all_to_all;
  const std::int64_t count = by_part ? op_.buffer.count / size() : op_.buffer.count;
  const std::int64_t most = (op_.buffer.on_gpu ? kGpuWindow : kWindow) / width() / (by_part ? size() : 1);
  window_ = {window_.end, std::min(count, window_.end + most)};
  return window_.size() > 0;
}

/// Where element 0 of each rank's buffer would lie, if the window were a part of the whole.
std::vector<std::byte*> Direct::windows() const {
  std::vector<std::byte*> bases;
  bases.reserve(static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) {
    std::byte* window = op_.buffer.on_gpu ? group_.gpu().window(i) : group_.block().window(i);
    bases.push_back(window - (op_.kind == Kind::all_to_all ? 0 : window_.begin * width()));
  }
  return bases;
}

void Direct::show_window() {
  std::byte* base = windows()[static_cast<std::size_t>(rank())];
  switch (op_.kind) {
    case Kind::all_to_all:
      for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t from = peer * (op_.input.count / size()) + window_.begin;
        copy_bytes(base + peer * window_.size() * width(), static_cast<const std::byte*>(op_.input.data) + from * width(),
                   window_.size() * width());
      }
      return;
    case Kind::all_gather: return copy(base, op_.buffer.data, intersection(window_, my_part()));
    case Kind::broadcast: return is_root() ? copy(base, op_.buffer.data, window_) : void();
    default: return copy(base, op_.buffer.data, window_);
  }
}

void Direct::use_window() {
  if (op_.kind == Kind::all_to_all) {
    exchange(window_, windows(), window_.size());
  } else {
    share_work(window_, windows());
  }
}

// Gathered and scattered parts were written straight into the buffer.
void Direct::fetch_window() {
  const bool wanted = op_.kind == Kind::allreduce || (op_.kind == Kind::reduce && is_root()) || (op_.kind == Kind::broadcast && !is_root());
  if (wanted) copy(op_.buffer.data, windows()[static_cast<std::size_t>(rank())], window_);
}

void Direct::copy(void* to_base, const void* from_base, Range range) const {
  copy_bytes(static_cast<std::byte*>(to_base) + range.begin * width(), static_cast<const std::byte*>(from_base) + range.begin * width(),
             range.size() * width());
}

void Direct::copy_bytes(void* to, const void* from, std::int64_t bytes) const {
  if (bytes > 0) group_.mover().copy(to, from, bytes, op_.buffer);
}

void Direct::end_window() const {
  if (op_.buffer.on_gpu) gpu::synchronize(op_.buffer.stream);
}

}  // namespace paceline::comm::shared

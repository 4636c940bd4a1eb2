// What a rank asks of a communicator. Every call is one Operation, so that engines and decorators implement a single function and cannot
// forget one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paceline/base/clock.h"
#include "paceline/comm/buffer.h"

namespace paceline::comm {

struct Operation {
  enum class Kind : std::uint8_t { allreduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, barrier, send, receive };

  Kind kind = Kind::barrier;
  Buffer buffer;
  Buffer input;  // all_to_all reads from here
  ReduceOp op = ReduceOp::sum;
  int root = 0;             // broadcast, reduce
  int peer = 0;             // send, receive
  int tag = 0;              // send, receive
  std::string algorithm;    // empty: the communicator's own choice
  Nanoseconds deadline{0};  // 0: the communicator's

  bool is_collective() const { return kind != Kind::send && kind != Kind::receive; }
  bool reduces() const { return kind == Kind::allreduce || kind == Kind::reduce_scatter || kind == Kind::reduce; }
  schedule::Collective collective() const { return static_cast<schedule::Collective>(kind); }  // of a collective
};
std::string_view name_of(Operation::Kind kind);
/// "allreduce of 1024 fp32" …, for messages.
std::string describe(const Operation& operation);

/// The deadline for waits of unknown length: for a disk, or for something that another rank does by itself. A rank that is gone is detected
/// all the same.
inline constexpr Nanoseconds kUntilTheEnd = std::chrono::hours(24 * 365);

struct Options {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string algorithm = {};
  Nanoseconds deadline{0};
};

// schedule/schedule.h says what the buffers hold before and after.
Operation allreduce(Buffer buffer, const Options& options = {});
Operation reduce_scatter(Buffer buffer, const Options& options = {});
Operation all_gather(Buffer buffer, const Options& options = {});
Operation broadcast(Buffer buffer, const Options& options = {});
Operation reduce(Buffer buffer, const Options& options = {});
Operation all_to_all(Buffer input, Buffer output, const Options& options = {});
Operation barrier(const Options& options = {});
Operation send(Buffer buffer, int peer, int tag = 0, const Options& options = {});
Operation receive(Buffer buffer, int peer, int tag = 0, const Options& options = {});

}  // namespace paceline::comm

// A training step as data: what one rank computes, sends and waits for, and in which order. A strategy states it (strategies/registry.h),
// `perf` costs it, `sim` replays it for thousands of ranks, and a test holds it against what the strategy really did.
//
// Actions of one lane run one after another, in the order of the list. Lanes run beside each other: `compute` is the worker's own thread
// (or the GPU's stream), `exchange` the thread (or stream) that buckets leave on. An action begins once those in `after` have ended, too.
//
// A program describes a kind of rank: with a pipeline there is one for each stage, and ranks along the data and tensor axes share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::schedule {

struct Action {
  enum class Kind : std::uint8_t { compute, communicate, wait };
  /// What is computed. The passes are of units [first, last) and one micro-batch; the others go over `elements` of the arena.
  enum class Work : std::uint8_t {
    none,
    forward,
    backward,          // gradients of inputs and weights
    input_gradients,   // of inputs alone
    weight_gradients,  // what input_gradients put off
    update,
    encode,  // a compressor's
    decode,
  };
  /// What is exchanged. The first seven are collectives among the ranks of the axis (schedule.h), the next two are between two ranks of it,
  /// the last two between a worker and the parameter servers.
  enum class Exchange : std::uint8_t {
    allreduce,
    reduce_scatter,
    all_gather,
    broadcast,
    reduce,
    all_to_all,
    barrier,
    send,
    receive,
    pull,
    push,
    none
  };
  enum class Axis : std::uint8_t { data, pipeline, tensor, server };
  enum class Lane : std::uint8_t { compute, exchange };

  Kind kind = Kind::wait;
  Lane lane = Lane::compute;
  std::vector<int> after = {};  // indices of earlier actions

  Work work = Work::none;
  int first = 0, last = 0;  // units
  int micro_batch = 0;
  std::int64_t elements = 0;  // update, encode, decode; and of what is exchanged: of the whole buffer, as a collective's count

  Exchange exchange = Exchange::none;
  Axis axis = Axis::data;
  double element_bytes = 4;  // on the wire; a compressor's need not be whole
  int peer = 0;              // send, receive: rank along the axis
  int tag = 0;               // send, receive: pairs both sides
  std::string algorithm = "auto";

  bool operator==(const Action&) const = default;
};
std::string_view name_of(Action::Kind kind);
std::string_view name_of(Action::Work work);
std::string_view name_of(Action::Exchange exchange);
std::string_view name_of(Action::Axis axis);

using Program = std::vector<Action>;

/// What a strategy needs to know for its program: the model as numbers, no tensors.
struct ProgramModel {
  struct Unit {
    std::int64_t parameters = 0;          // elements of the arena, of this rank's slice
    std::int64_t private_parameters = 0;  // of these, what no other data-parallel rank has
    std::int64_t border = 0;              // elements that one sample hands to the next unit
    std::int64_t tensor_exchanged = 0;    // elements that one sample exchanges along the tensor axis in a forward pass (allreduce)
  };
  std::vector<Unit> units;
};

/// Settings that decide a step's program; names and defaults as in a recipe.
struct ProgramSettings {
  int data = 1, pipeline = 1, tensor = 1, zero = 0;
  std::int64_t samples = 1;  // of one data-parallel rank in a step
  std::int64_t micro_batches = 1;
  std::string schedule = "1f1b";
  int chunks = 1;
  std::vector<std::vector<int>> stages = {};  // by rank of the pipeline: first and last unit of its chunks, in pairs; empty: one stage
  std::string recompute = "none";
  std::int64_t bucket_bytes = 8 << 20;
  bool overlap = false;  // buckets leave during the backward pass
  bool sharded_update = false;
  double wire_bytes = 4;  // of a gradient's element
  std::string compression = "none";
  std::int64_t storage_bytes = 4;
  std::string algorithm = "auto";
  std::int64_t period = 8;  // local_sgd and its like; the program is that of a step at which they meet
  int servers = 1;
};

/// Throws ConfigError where the actions refer to later ones, or a pass to units that are none.
void check(const Program& program, const ProgramModel& model);

/// A program as lines of text, one for each action, for tests and `paceline plan --explain`.
std::string to_text(const Program& program);

}  // namespace paceline::schedule

// A training step as data: what one rank computes, sends and waits for, and in which order. A strategy writes it (strategies/registry.h),
// `perf` costs it, `sim` replays it for thousands of ranks, and a test compares it with what the strategy really does.
//
// Actions of one lane run one after the other, in the order of the list; lanes run in parallel. An action also waits for those in `after`.
// A send ends when its receiver has the data; sends and receives of two ranks are matched by tag, in order.
//
// A program describes a kind of rank: with a pipeline there is one for each stage, and ranks along the data and tensor axes share it.
// If such ranks differ in their peers, `peer` is relative to the rank itself: the rank `peer` places further on.
#pragma once

#include <cstdint>
#include <memory>
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
    input_gradients,   // of inputs only
    weight_gradients,  // the rest, which input_gradients leaves for later
    update,
    encode,  // a compressor's
    decode,
  };
  /// What is communicated. The first seven are collectives among the ranks of the axis (schedule.h), the next two are between two ranks of
  /// it, the last two between a worker and the parameter servers.
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
  enum class Lane : std::uint8_t {
    compute,   // the worker's own thread, or the GPU's stream
    exchange,  // buckets that are sent while the pass continues
    gather,    // parameters that are gathered for the next unit (ZeRO 3)
    send,      // across a border of the pipeline, or to another replica: started and not waited for
    receive,   // expected before it is needed
  };

  /// The actions of a folded pass (ProgramSettings::folds), which many micro-batches share; none: the action is not folded.
  class Parts {
   public:
    Parts() = default;
    explicit Parts(std::vector<Action> actions);
    explicit operator bool() const { return shared_ != nullptr; }
    const std::vector<Action>& operator*() const { return *shared_; }
    const std::vector<Action>* get() const { return shared_.get(); }
    bool operator==(const Parts& other) const;  // by value

   private:
    std::shared_ptr<const std::vector<Action>> shared_;
  };

  Kind kind = Kind::wait;
  Lane lane = Lane::compute;
  std::vector<int> after = {};  // indices of earlier actions
  Parts parts = {};             // one after the other on the compute lane, and nothing else waits for them

  Work work = Work::none;
  int first = 0, last = 0;  // units
  int micro_batch = 0;
  std::int64_t elements = 0;  // update, encode, decode; communication: of the whole buffer, as in a collective's count

  Exchange exchange = Exchange::none;
  Axis axis = Axis::data;
  double element_bytes = 4;  // on the wire; with a compressor, it may be a fraction
  int peer = 0;              // send, receive: rank along the pipeline axis; along others, relative to this rank
  int tag = 0;               // send, receive: pairs both sides
  std::string algorithm = "auto";

  bool operator==(const Action&) const = default;
};
std::string_view name_of(Action::Kind kind);
std::string_view name_of(Action::Work work);
std::string_view name_of(Action::Exchange exchange);
std::string_view name_of(Action::Axis axis);
std::string_view name_of(Action::Lane lane);

using Program = std::vector<Action>;

/// Calls `visit` for each action, and for the parts of folded ones instead of these.
template <class Visit>
void visit_parts(const Program& program, const Visit& visit) {
  for (const Action& action : program)
    if (!action.parts) visit(action);
    else
      for (const Action& part : *action.parts) visit(part);
}

/// What a strategy must know for its program: the model as numbers, without tensors.
struct ProgramModel {
  /// An entry of the arena.
  struct Tensor {
    std::int64_t elements = 0;  // of this rank's slice, padding included
    bool is_private = false;    // no other data-parallel rank has it: experts
    bool is_slice = false;      // ranks of the tensor axis have the rest of it
  };
  /// A collective that layers make in the middle of a pass, along the tensor or the data axis.
  struct LayerCollective {
    Action::Exchange exchange = Action::Exchange::allreduce;
    Action::Axis axis = Action::Axis::tensor;
    std::int64_t elements = 0;  // of one sample: of the whole buffer
    std::int64_t fixed = 0;     // and per pass, independent of its samples
    double element_bytes = 0;   // 0: those of activations
  };
  struct Unit {
    std::vector<Tensor> tensors = {};                          // in the arena's order
    std::int64_t border = 0;                                   // elements that one sample passes to the next unit
    std::vector<LayerCollective> forward = {}, backward = {};  // in their order
    std::int64_t parameters() const;
    std::int64_t private_parameters() const;
  };
  std::vector<Unit> units;
  std::vector<LayerCollective> loss = {};  // after the last unit's forward pass, if ranks share the logits
  /// An embedding whose table is also the head's weight. If a pipeline separates them, the table is sent to the head's stage before a
  /// step's first pass, and its gradient is sent back after the last one.
  struct Tied {
    int table = -1, head = -1;  // units; below 0: there is none
    std::int64_t elements = 0;
  };
  Tied tied = {};
  std::int64_t parameters() const;
};

/// How a compressed bucket is sent.
enum class CompressedTraffic : std::uint8_t {
  none,
  averaged,  // codes that can be added: allreduces of them
  dense,     // each rank decodes and encodes a slice: an all-to-all and an all-gather of codes
  sparse,    // each rank gets all codes: an all-gather
  rounded,   // as dense, in bf16: added in fp32
};

/// The settings that determine a step's program; names and defaults are those of a recipe.
struct ProgramSettings {
  int data = 1, pipeline = 1, tensor = 1, zero = 0;
  std::int64_t samples = 1;        // of one data-parallel rank in a step
  std::int64_t micro_batches = 1;  // no more than samples
  std::string schedule = "1f1b";
  int chunks = 1;
  std::vector<std::vector<int>> stages = {};  // by rank of the pipeline: first and last unit of its chunks, in pairs; empty: one stage
  std::string recompute = "none";
  std::int64_t bucket_bytes = 8 << 20;  // of gradients; 0: all of them
  bool overlap = false;                 // buckets are sent during the backward pass
  bool by_unit = false;                 // a bucket for each unit; always with ZeRO 3
  bool sharded_update = false;          // each data-parallel rank updates a part of every bucket; always with ZeRO 1 and above
  bool update_at_end = false;           // all parameters are updated at once: on a GPU, or with clipping by a norm
  bool clips = false;                   // gradients are clipped by the global norm, which ranks that share tensors must sum up
  bool adapts = false;                  // rates follow each tensor's norm (LARS, LAMB), which they must also sum up
  double wire_bytes = 4;                // of an element of an encoded gradient
  CompressedTraffic compressed = CompressedTraffic::none;
  int compressed_rounds = 1;          // allreduces of a bucket: PowerSGD has two
  std::int64_t storage_bytes = 4;     // of a parameter
  bool fp32_gradients = false;        // gradients are stored in fp32; otherwise in the type of the parameters
  std::int64_t activation_bytes = 4;  // of an element that crosses a border, or is exchanged within a layer
  std::string algorithm = "auto";
  /// A pass that nothing interrupts is one action, with all exchanges of its layers in `parts`: for costs, as long as no action slows down
  /// another one.
  bool folds = false;
  std::int64_t staleness = 1;  // stale_sync
  int servers = 1;             // which share the parameters

  std::int64_t gradient_bytes() const { return fp32_gradients ? 4 : storage_bytes; }
  /// The number of micro-batches that are computed: at most the number of samples.
  int parts() const;
  std::int64_t samples_of(int micro_batch) const;
};
// Strategies that meet every few steps (local_sgd and its relatives) describe a step in which they meet.

/// Throws InternalError if the actions refer to later ones, or a pass to units that do not exist.
void check(const Program& program, const ProgramModel& model);

/// A program as lines of text, one for each action, for tests and `paceline plan --explain`.
std::string to_text(const Program& program);

}  // namespace paceline::schedule

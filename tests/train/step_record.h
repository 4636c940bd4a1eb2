// What a rank does in a step, held against its step program (schedule/program.h) while it does it: the passes of units, operations and
// waits of the step's own thread in their order, and what runs beside them in lanes of its own.
//
// Threads could hide the order across lanes: what leaves too late may still come before what must wait for it. So two steps are recorded,
// each at an extreme that its program allows. In the first, a unit's pass begins only once everything that has left by then, as the program
// says, was seen, and nothing else was. In the second, what runs in a lane is kept waiting until its program has it waited for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/mesh.h"
#include "paceline/nn/recomputing_model.h"
#include "paceline/schedule/program.h"

namespace paceline::train {

/// By lane ("data exchange", "data gather"): how many of its operations.
using LaneCounts = std::map<std::string, std::size_t>;

struct StepEvent {
  std::string text;       // "forward of unit 3, micro-batch 0", "data allreduce 64 B", "wait for pipeline receive 64 B"
  bool is_pass = false;   // of a unit
  LaneCounts left = {};   // before it
  LaneCounts ended = {};  // that must have
};

struct StepOrder {
  std::vector<StepEvent> thread;                          // the last is the step's end
  std::map<std::string, std::vector<std::string>> lanes;  // their operations
};

std::string pass_text(schedule::Action::Work work, std::size_t unit, std::size_t micro_batch);
std::string operation_text(std::string_view axis, std::string_view operation, std::int64_t bytes);
/// `lanes_are_threads`: what is in the lane of exchanges is called by a thread of its own; otherwise it is begun by the step's own.
StepOrder order_of(const schedule::Program& program, bool lanes_are_threads);

/// freely: nothing is kept waiting, and no lane is held against the other.
enum class Pace { freely, lanes_soon, lanes_late };

/// Of one rank. Made by the step's own thread.
class StepRecord {
 public:
  void begin_step(StepOrder order, Pace pace);
  void end_step();

  void pass(schedule::Action::Work work, std::size_t unit, std::uint64_t chance);  // `chance` differs by micro-batch
  void event(const std::string& text, bool is_pass = false);
  void leaves(const std::string& lane, const std::string& text, bool can_wait);
  void ended(const std::string& lane);

  bool is_own_thread() const { return std::this_thread::get_id() == thread_; }
  bool records() const { return records_; }
  const StepOrder& order() const { return order_; }
  std::vector<std::string> thread() const;
  const std::map<std::string, std::vector<std::string>>& lanes() const { return lanes_; }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  std::size_t first_that_waits(const std::string& lane, std::size_t number) const;

  const std::thread::id thread_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> records_ = false;
  bool astray_ = false;  // it does something else than its program
  Pace pace_ = Pace::freely;
  StepOrder order_;
  std::vector<std::string> events_, faults_;
  std::map<std::string, std::vector<std::string>> lanes_;
  LaneCounts left_, ended_;
  std::map<std::uint64_t, std::size_t> micro_batches_;  // by chance
};

/// Records the passes of a model's units. It is the innermost decorator, so that recomputation is seen; its base hands all else on.
class RecordedModel final : public nn::RecomputingModel {
 public:
  RecordedModel(const std::shared_ptr<nn::Model>& inner, StepRecord& record)
      : RecomputingModel(inner, nn::Recompute::none), inner_(inner), record_(record) {}

  using Model::back;
  using Model::run;
  nn::Tensors run(nn::Units range, nn::Tensors inputs, const nn::Pass& pass, nn::Trace* trace) override;
  nn::Tensors back(nn::Units range, nn::Tensors gradients, const nn::Pass& pass, nn::Trace& trace, const nn::Wanted& wanted,
                   const nn::GradientReady& ready) override;
  void weight_gradients(nn::Units range, const nn::Pass& pass, nn::Trace& trace, const nn::GradientReady& ready) override;

 private:
  std::shared_ptr<nn::Model> inner_;
  StepRecord& record_;
};

/// What of a step a group of ranks carries.
struct RecordedGroup {
  std::string axis = {};  // empty: nothing
  std::string lane = {};  // of what runs beside the step
};

/// Names the groups of a run as they are split off, the first along an axis before others. What is called beside the step goes over the
/// mesh's own axis, or, where parameters are gathered, over one that was split off from it.
class GroupNames {
 public:
  explicit GroupNames(const comm::MeshSizes& sizes) : sizes_(sizes) {}
  RecordedGroup name(const std::vector<int>& ranks);  // of the run

 private:
  comm::MeshSizes sizes_;
  std::set<std::string> seen_ = {};
};

/// Records the operations of a communicator and of what is split off from it.
class RecordedComm final : public comm::Decorator {
 public:
  RecordedComm(std::unique_ptr<comm::Communicator> inner, StepRecord& record, GroupNames& names);
  comm::Work start(const comm::Operation& operation) override;
  void run(const comm::Operation& operation) override;
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return std::make_unique<RecordedComm>(inner().split(color, key), record_, names_);
  }

 private:
  StepRecord& record_;
  GroupNames& names_;
  RecordedGroup group_;
};

}  // namespace paceline::train

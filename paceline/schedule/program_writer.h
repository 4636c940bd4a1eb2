// Writes the program of one kind of rank. The part that all strategies share is here: the passes over the rank's units, in the order of the
// pipeline's schedule, with recomputation, gathering (ZeRO 3), exchanges within layers and messages to other stages. Strategies add what
// they do with gradients.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "paceline/schedule/bucket_cut.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/schedule/program.h"

namespace paceline::schedule {

/// Callbacks for gradients while they are computed.
struct GradientListener {
  std::function<bool(int unit)> wants = {};                // whether to call `complete` for this unit before the pass continues
  std::function<void(int first, int last)> complete = {};  // the gradients of units [first, last)
  std::function<void()> pass_over = {};                    // after the last pass, or after each micro-batch's if `each_part`
  bool each_part = false;  // gradients are handed over in the pass of each micro-batch, if there is one stage
};

class ProgramWriter {
 public:
  /// `rank`: of the pipeline. Its arguments must outlive it.
  ProgramWriter(const ProgramModel& model, const ProgramSettings& settings, int rank);

  /// The passes of all micro-batches of a step. ConfigError if the schedule is impossible.
  void passes(const GradientListener& listener = {});

  // Each returns the action's index.
  int compute(Action::Lane lane, Action::Work work, std::int64_t elements, std::vector<int> after = {});
  int communicate(Action::Lane lane, Action::Exchange exchange, Action::Axis axis, std::int64_t elements, double element_bytes,
                  std::vector<int> after = {});
  int message(Action::Lane lane, Action::Exchange exchange, Action::Axis axis, int peer, int tag, std::int64_t elements,
              double element_bytes, std::vector<int> after = {});
  int wait(std::vector<int> after);
  /// An update of this many elements at once, after the norms that it depends on have been summed over all ranks that share them.
  void update_all(std::int64_t elements, bool sharded = false);
  /// The last action of that lane, as a value for `after`; empty if there is none.
  std::vector<int> last(Action::Lane lane) const;

  /// The entries of the units that this rank holds.
  const std::vector<BucketEntry>& entries() const { return entries_; }
  std::int64_t elements() const;
  int parts() const { return parts_; }  // micro-batches
  Program take() { return std::move(program_); }

 private:
  struct UnitRange {
    int first = 0, last = 0;
  };
  /// The next action, to be filled in.
  Action& add();
  int newest() const { return static_cast<int>(program_.size()) - 1; }
  UnitRange units_of(int chunk) const;
  void forward(UnitRange range, int micro_batch);
  void backward(UnitRange range, int micro_batch, Action::Work work, const GradientListener* listener);
  void forward_units(UnitRange range, int micro_batch);
  void backward_units(UnitRange range, int micro_batch, Action::Work work, const GradientListener* listener);
  /// Whether passes may be folded. If parameters are gathered, other lanes wait for what is computed in between.
  bool folds() const { return settings_.folds && !gathers(); }
  /// One action for those that `write` adds, which are kept for passes of the same work, units and samples.
  void fold(Action::Work work, UnitRange range, int micro_batch, const std::function<void()>& write);
  void local_passes(const GradientListener& listener);
  void pipeline_passes(const GradientListener& listener);
  bool has_unit(int rank, int unit) const;
  int stage_with(int unit) const;
  void tied_message(bool gradient, bool sends);
  int border_message(Action::Lane lane, Action::Exchange exchange, const PipelineMessage& message, std::vector<int> after);
  void pass(Action::Work work, UnitRange range, int micro_batch);
  void add_collectives(const std::vector<ProgramModel::LayerCollective>& collectives, int micro_batch);
  void forward_again(int unit, int micro_batch);
  bool recomputes(UnitRange segment, int unit) const;
  UnitRange segment_of(UnitRange range, int unit) const;
  void open_segment(UnitRange segment, int micro_batch);

  // As sharded::GatheringModel does it.
  bool gathers() const { return settings_.zero == 3 && settings_.data > 1; }
  void hold(int unit, int next);
  void request(int unit);
  void drop(int unit) { gathered_[static_cast<std::size_t>(unit)] = kAbsent; }

  static constexpr int kAbsent = -2, kHere = -1;  // otherwise the index of the action that gathers it

  const ProgramModel& model_;
  const ProgramSettings& settings_;
  int rank_, parts_;
  std::vector<std::int64_t> samples_;  // by micro-batch
  std::vector<UnitRange> chunks_;
  std::vector<BucketEntry> entries_;
  std::vector<int> gathered_;                                                          // by unit
  std::map<std::tuple<Action::Work, int, std::int64_t>, std::vector<Action>> folded_;  // by first unit and samples; one action each
  Program program_;
};

}  // namespace paceline::schedule

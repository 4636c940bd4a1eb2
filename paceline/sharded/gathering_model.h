// A model of which this rank holds only a part: what a unit needs is brought into memory when the unit computes, and released afterwards.
//
// Under ZeRO stage 2 these are the gradients, for which a backward pass needs memory unit by unit; the code that reduces them also releases
// them. Under stage 3 they are also the parameters: they are gathered from their owners before a unit's forward or backward pass, while a
// separate thread gathers the next unit's, and released after it. Only the last unit of a forward pass stays, since its backward pass comes
// next. A unit that borrows parameters of another one (tied embeddings) brings that one in and releases it with itself. So every pass is
// collective along the data axis: all its ranks make the same passes in the same order, those without samples by sit_out_run() and
// sit_out_back().
//
// Views stay valid, since the arena's addresses do not change. Strategies and passes use this like the model that it decorates; network()
// answers what only the network itself knows (its untrained tensors, which weights are tied).
#pragma once

#include <atomic>

#include "paceline/base/clock.h"
#include "paceline/comm/communicator.h"
#include "paceline/data_parallel/lane.h"
#include "paceline/nn/model.h"

namespace paceline::sharded {

class GatheringModel final : public nn::Model {
 public:
  /// `comm`: the data axis. Under stage 3, the arena's parameters are from now on owned in parts of units. Collective. ConfigError if stage
  /// 3 finds only one unit.
  GatheringModel(std::shared_ptr<nn::Model> model, comm::Communicator& comm, const Clock& clock, int stage);

  const nn::Model& network() const override { return model_->network(); }
  std::shared_ptr<nn::Model> another() const override { return model_->another(); }
  const std::vector<nn::Unit>& units() const override { return model_->units(); }
  tensor::Arena& arena() override { return model_->arena(); }
  tensor::Arena& statistics() override { return model_->statistics(); }
  double statistics_momentum(std::size_t entry) const override { return model_->statistics_momentum(entry); }
  const c10::Device& device() const override { return model_->device(); }
  tensor::Precision precision() const override { return model_->precision(); }
  bool uses_chance() const override { return model_->uses_chance(); }
  bool takes_masks() const override { return model_->takes_masks(); }
  bool recordable() const override { return stage_ < 3 && model_->recordable(); }
  bool exchanges_samples() const override { return model_->exchanges_samples(); }
  bool workers_meet() const override { return stage_ == 3 || model_->workers_meet(); }
  std::vector<nn::Part> parts() const override { return model_->parts(); }
  void take_back() override { model_->take_back(); }
  void refresh() override;

  using Model::back;
  using Model::run;
  nn::Tensors run(nn::Units range, nn::Tensors inputs, const nn::Pass& pass, nn::Trace* trace) override;
  nn::Tensors back(nn::Units range, nn::Tensors gradients, const nn::Pass& pass, nn::Trace& trace, const nn::Wanted& wanted,
                   const nn::GradientReady& ready) override;
  void weight_gradients(nn::Units range, const nn::Pass& pass, nn::Trace& trace, const nn::GradientReady& ready) override;
  void walk(const at::Tensor& input, const nn::Pass& pass, const nn::Visit& visit) override;
  void sit_out_run(nn::Units range, bool trained) override;
  void sit_out_back(nn::Units range, const nn::Pass& pass, const nn::GradientReady& ready) override;

  /// Stage 3: brings all parameters into memory on all ranks; or releases all but the rank's own. Collective.
  void gather_all();
  void release_all();

  nn::Traffic traffic() const override;

 private:
  enum class State { absent, coming, here };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  tensor::OwnedRange range_of(std::size_t unit) const;
  std::vector<tensor::OwnedRange> shared_ranges(std::size_t unit) const;  // without private entries, which never leave their rank
  /// Waits until the unit is in memory, and starts to gather `next`, unless it is kNone.
  void hold(std::size_t unit, std::size_t next, bool training);
  void drop(std::size_t unit);
  void request(std::size_t unit, bool training);
  void gather(std::size_t unit);
  void commit_gradients(std::size_t unit);
  /// Runs body(pass), with units gathered before their backward passes and released after them.
  void go_back(nn::Units range, const nn::Pass& pass, const std::function<void(const nn::Pass&)>& body);

  std::shared_ptr<nn::Model> model_;
  std::unique_ptr<comm::Communicator> comm_;  // for the gathers alone: gradients are in flight at the same time
  const Clock& clock_;
  int stage_;

  struct Presence {
    State state = State::here;
    data_parallel::Lane::Ticket ticket = 0;  // of the gather that is in progress
  };
  std::vector<Presence> units_;
  std::int64_t bytes_sent_ = 0;  // by training passes
  Nanoseconds waited_{0};
  std::atomic<Nanoseconds> busy_{Nanoseconds(0)};
  data_parallel::Lane lane_;  // last: its thread uses everything above
};

}  // namespace paceline::sharded

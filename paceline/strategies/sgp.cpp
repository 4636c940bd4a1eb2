// Stochastic gradient push (Assran et al., 2019): push-sum over a directed graph. Each worker has a biased x and a weight w, and computes
// its gradients at z = x / w. After its own step it keeps half of (x, w) and pushes the other half to one neighbour:
//   x_i ← x_i/2 + x_j/2;  w_i ← w_i/2 + w_j/2;  z_i = x_i / w_i
// The neighbour at step k lies 2^(k mod ⌈log₂ M⌉) places on (the exponential graph): ⌈log₂ M⌉ steps spread every worker's news
// to all. On this graph a worker gets as much weight as it gives, so w stays 1 up to rounding; it travels along all the same, because
// push-sum is right only with it.
#include <ATen/ATen.h>

#include <bit>

#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/pending.h"
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class Sgp final : public data_parallel::Meeting {
 public:
  explicit Sgp(const data_parallel::MeetingSetup& setup) : Meeting(setup) { prepare(); }

  void prepare() override {
    const auto allocate = data_parallel::allocate_from(comm());
    weight_ = at::ones({1}, parameters().options());
    pushed_ = allocate(parameters().numel() + 1, parameters().options());
    arrived_ = allocate(parameters().numel() + 1, parameters().options());
  }

  std::int64_t meet(const step::Point& point) override {
    const int workers = comm().size(), rank = comm().rank();
    if (workers == 1) return 0;
    const int doublings = std::bit_width(static_cast<unsigned>(workers - 1));
    const int hop = static_cast<int>((std::int64_t{1} << (point.step % doublings)) % workers);
    // One message carries x = w z and w.
    at::Tensor debiased = parameters();
    const std::int64_t length = debiased.numel();
    const at::Tensor half = weight_ * 0.5;
    at::Tensor values = pushed_.narrow(0, 0, length);
    at::mul_out(values, debiased, half);
    pushed_.narrow(0, length, 1).copy_(half);
    const comm::Buffer out = pushed_;
    const data_parallel::Pending sent(comm().start(comm::send(out, (rank + hop) % workers)));
    comm().run(comm::receive(arrived_, (rank - hop + workers) % workers));
    sent.wait();
    arrived_.add_(pushed_);
    weight_.copy_(arrived_.narrow(0, length, 1));
    at::div_out(debiased, arrived_.narrow(0, 0, length), weight_);
    return out.bytes();
  }

  // Σ x / Σ w: the weights of all workers add up to their number.
  void agree() override {
    parameters().mul_(weight_);
    average(parameters());
  }

  std::vector<step::NamedTensor> memory() override { return {{"weight", weight_}}; }

 private:
  at::Tensor weight_, pushed_, arrived_;  // [1], [length + 1]
};

/// With the weight behind the parameters.
void write_push(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  write_swap(writer, settings, elements + 1);
}

}  // namespace

std::unique_ptr<step::Strategy> make_sgp(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<Replicas>(config, context, std::make_unique<Sgp>(messages_setup(config, context)));
}

std::vector<schedule::Program> sgp_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_push);
}

}  // namespace paceline::strategies

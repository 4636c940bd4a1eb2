// Stochastic gradient push (Assran et al., 2019): push-sum over a directed graph. Each worker has a biased x and a weight w, and computes
// its gradients at z = x / w. After its own step it keeps half of (x, w) and pushes the other half to one neighbour:
//   x_i ← x_i/2 + x_j/2;  w_i ← w_i/2 + w_j/2;  z_i = x_i / w_i
// strategy.graph=exponential: at step k, the neighbour is 2^(k mod ⌈log₂ M⌉) ranks further on, so ⌈log₂ M⌉ steps spread every worker's
// values to all. Every worker receives as much weight as it sends, so w stays 1 up to rounding, and push-sum is plain averaging.
// strategy.graph=random: for every step, each worker draws another one from the run's seed, so that all know who pushes to whom. Some
// receive several messages and some none; the weights w keep Σ x / Σ w the mean of all.
#include <ATen/ATen.h>

#include <bit>
#include <vector>

#include "paceline/base/random.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/pending.h"
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class Sgp final : public data_parallel::Meeting {
 public:
  Sgp(const data_parallel::MeetingSetup& setup, bool random) : Meeting(setup), random_(random) { prepare(); }

  void prepare() override {
    const auto allocate = data_parallel::allocate_from(comm());
    weight_ = at::ones({1}, parameters().options());
    pushed_ = allocate(parameters().numel() + 1, parameters().options());
    arrived_ = allocate(parameters().numel() + 1, parameters().options());
    sum_ = at::empty_like(pushed_);
  }

  std::int64_t meet(const step::Point& point) override {
    const int workers = comm().size(), rank = comm().rank();
    if (workers == 1) return 0;
    const std::vector<int> to = destinations(point.step);
    // One message carries x = w z and w.
    at::Tensor debiased = parameters();
    const std::int64_t length = debiased.numel();
    const at::Tensor half = weight_ * 0.5;
    at::Tensor values = pushed_.narrow(0, 0, length);
    at::mul_out(values, debiased, half);
    pushed_.narrow(0, length, 1).copy_(half);
    const comm::Buffer out = pushed_;
    const data_parallel::Pending sent(comm().start(comm::send(out, to[static_cast<std::size_t>(rank)])));
    sum_.copy_(pushed_);  // the half that stays
    for (int from = 0; from < workers; ++from) {
      if (to[static_cast<std::size_t>(from)] != rank) continue;
      comm().run(comm::receive(arrived_, from));
      sum_.add_(arrived_);
    }
    sent.wait();
    weight_.copy_(sum_.narrow(0, length, 1));
    at::div_out(debiased, sum_.narrow(0, 0, length), weight_);
    return out.bytes();
  }

  // Σ x / Σ w: the weights of all workers add up to their number.
  void agree() override {
    parameters().mul_(weight_);
    average(parameters());
  }

  std::vector<step::NamedTensor> memory() override { return {{"weight", weight_}}; }

 private:
  /// By worker: whom it pushes to.
  std::vector<int> destinations(std::int64_t step) const {
    const int workers = comm().size(), doublings = std::bit_width(static_cast<unsigned>(workers - 1));
    RandomStream drawn(seed(), Purpose::gossip, 1, static_cast<std::uint64_t>(step));
    std::vector<int> to;
    for (int worker = 0; worker < workers; ++worker) {
      const auto hop = random_ ? 1 + static_cast<int>(drawn.below(static_cast<std::uint64_t>(workers - 1)))
                               : static_cast<int>((std::int64_t{1} << (step % doublings)) % workers);
      to.push_back((worker + hop) % workers);
    }
    return to;
  }

  bool random_;
  at::Tensor weight_, pushed_, arrived_, sum_;  // [1], [length + 1] each
};

/// The parameters followed by the weight. On a random graph, a worker receives one message on average.
void write_push(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  write_swap(writer, settings, elements + 1);
}

}  // namespace

std::unique_ptr<step::Strategy> make_sgp(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(config, context, std::make_unique<Sgp>(messages_setup(config, context), config.graph == "random"));
}

std::vector<schedule::Program> sgp_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_push);
}

}  // namespace paceline::strategies

// AdaSync (Dutta et al., "Slow and stale gradients can win the race", JSAIT 2021): k_async whose K grows while training. Early in training
// a wrong direction costs little, and frequent updates help; later, the noise of few and stale gradients keeps the loss from falling.
//
//   K = K₀ (F₀ / F)^exponent, rounded; never less than it was, never more than the workers that are present
//
// F is the running mean of about kWindow pushed losses (the plain mean until there are that many, exponential from then on), and F₀ is its
// value after the first kWindow.
#include <algorithm>
#include <bit>
#include <cmath>

#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kWindow = 100;

class AdaSync final : public Gathering {
 public:
  AdaSync(int workers, std::int64_t first_group, double exponent)
      : Gathering(workers, {.group = first_group, .contributors_wait = true, .cancels = false}),
        first_group_(first_group),
        exponent_(exponent) {}

  Admission pushed(int worker, double loss) override {
    const Admission admission = Gathering::pushed(worker, loss);
    if (admission.fate != Admission::Fate::dropped && std::isfinite(loss)) observe(loss);
    return admission;
  }

  // [K, losses, F, F₀, what Gathering saves…], the bits of the two doubles
  std::vector<std::int64_t> save() const override {
    std::vector<std::int64_t> state{group(), losses_, std::bit_cast<std::int64_t>(mean_), std::bit_cast<std::int64_t>(first_mean_)};
    const auto rest = Gathering::save();
    state.insert(state.end(), rest.begin(), rest.end());
    return state;
  }

  void load(std::span<const std::int64_t> state) override {
    check_state(state.size() > 4 && state[0] >= 1 && state[1] >= 0 && state[1] <= kWindow);
    const auto mean = std::bit_cast<double>(state[2]), first_mean = std::bit_cast<double>(state[3]);
    check_state(std::isfinite(mean) && std::isfinite(first_mean));
    Gathering::load(state.subspan(4));
    set_group(state[0]);
    losses_ = state[1];
    mean_ = mean;
    first_mean_ = first_mean;
  }

 private:
  void observe(double loss) {
    const bool early = losses_ < kWindow;
    losses_ = std::min(losses_ + 1, kWindow);
    mean_ += (loss - mean_) / static_cast<double>(losses_);
    if (early) first_mean_ = mean_;
    if (!(mean_ > 0 && first_mean_ > 0)) return;  // a loss that changes its sign says nothing about the progress
    const double wanted = static_cast<double>(first_group_) * std::pow(first_mean_ / mean_, exponent_);
    const auto most = static_cast<double>(present());
    set_group(std::max(group(), static_cast<std::int64_t>(std::round(std::min(wanted, most)))));
  }

  std::int64_t first_group_;
  double exponent_;
  std::int64_t losses_ = 0;  // seen so far, kWindow at most
  double mean_ = 0, first_mean_ = 0;
};

}  // namespace

std::unique_ptr<Consistency> adasync(const ConsistencyConfig& config, int workers) {
  return std::make_unique<AdaSync>(workers, group_of(config, workers), config.loss_exponent);
}

}  // namespace paceline::ps

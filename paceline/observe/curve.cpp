#include "paceline/observe/curve.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/files.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/metrics.h"

namespace paceline::observe {
namespace {

/// Losses that fall by more than this factor get a logarithmic axis; on a linear one, the end of the curve would look flat.
constexpr double kLogFrom = 30;

bool spans_decades(const std::vector<Series>& all) {
  double low = INFINITY, high = 0;
  for (const Series& series : all)
    for (double y : series.y)
      if (std::isfinite(y)) low = std::min(low, y), high = std::max(high, y);
  return low > 0 && high > kLogFrom * low;
}

}  // namespace

void ThinnedSeries::add(double x, double y) {
  if (blocks_.empty() || blocks_.back().count >= block_length_) {
    if (blocks_.size() == kMostPoints) {
      for (std::size_t i = 0; i < kMostPoints / 2; ++i) blocks_[i] = merge(blocks_[2 * i], blocks_[2 * i + 1]);
      blocks_.resize(kMostPoints / 2);
      block_length_ *= 2;
    }
    blocks_.emplace_back();
  }
  blocks_.back() = merge(blocks_.back(), {x, y, 1});
}

ThinnedSeries::Block ThinnedSeries::merge(const Block& a, const Block& b) {
  const double count = static_cast<double>(a.count + b.count), share = static_cast<double>(b.count) / count;
  return {a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share, a.count + b.count};
}

Series ThinnedSeries::series(std::string name) const {
  Series series;
  series.name = std::move(name);
  for (const Block& block : blocks_) {
    series.x.push_back(block.x);
    series.y.push_back(block.y);
  }
  return series;
}

void Curve::on(const Event& event) {
  if (const auto* e = std::get_if<RunStarted>(&event)) {
    run_ = *e;
    if (e->first_step > 0)
      for (const Event& earlier : read_events(metrics_)) add(earlier);
  }
  add(event);
  // If epochs take milliseconds, not every one needs a new drawing.
  if (std::holds_alternative<Evaluated>(event) && (!written_ || clock_.now() - *written_ >= std::chrono::seconds(1))) write();
  if (std::holds_alternative<RunEnded>(event)) write();
}

void Curve::add(const Event& event) {
  if (const auto* e = std::get_if<StepDone>(&event)) {
    const auto epoch_after = [&](std::int64_t steps) {
      return static_cast<double>(e->epoch - 1) +
             static_cast<double>(steps) / static_cast<double>(std::max<std::int64_t>(1, e->epoch_steps));
    };
    if (epoch_ == 0) first_epoch_ = epoch_after(e->epoch_step - 1);
    epoch_ = epoch_after(e->epoch_step);
    train_loss_.add(epoch_, e->loss);
    train_accuracy_.add(epoch_, e->accuracy);
  }
  if (const auto* e = std::get_if<Evaluated>(&event)) {
    // Earlier steps may be unknown: after a resume without a record, or with a record that lacks the length of its epochs.
    if (epoch_ == 0) first_epoch_ = static_cast<double>(e->epoch);
    epoch_ = std::max(epoch_, static_cast<double>(e->epoch));
    if (!test_epoch_.empty() && test_epoch_.back() == epoch_)  // resumed there: the evaluation is made again
      test_epoch_.pop_back(), test_loss_.pop_back(), test_accuracy_.pop_back();
    test_epoch_.push_back(epoch_);
    test_loss_.push_back(e->loss);
    test_accuracy_.push_back(e->accuracy);
  }
}

Figure Curve::figure() const {
  const bool dots = test_epoch_.size() <= 60;
  const auto test = [&](const std::vector<double>& y) { return Series{"test", test_epoch_, y, dots}; };
  Axis epochs;
  epochs.label = "epoch";
  epochs.least = first_epoch_;

  Panel loss;
  loss.title = run_.per_token ? "loss per token" : "loss";
  loss.x = epochs;
  loss.series.push_back(train_loss_.series("training"));
  if (!test_epoch_.empty()) loss.series.push_back(test(test_loss_));
  loss.y.log = spans_decades(loss.series);
  Figure figure;
  figure.title = run_.run.empty() ? "run" : std::filesystem::path(run_.run).filename().string();
  figure.subtitle = fmt::format("{} on {} · {} · batch {} · {} · {}", run_.network, run_.dataset, run_.optimizer, run_.batch, run_.strategy,
                                plural(run_.workers, "worker"));
  figure.panels.push_back(std::move(loss));
  if (!run_.shows_accuracy()) {
    figure.panel_width = 640;
    return figure;
  }

  Panel accuracy;
  accuracy.title = "accuracy";
  accuracy.x = epochs;
  accuracy.y.unit = Axis::Unit::percent;
  accuracy.series.push_back(train_accuracy_.series("training"));
  if (!test_epoch_.empty()) {
    accuracy.series.push_back(test(test_accuracy_));
    const auto best = std::ranges::max_element(test_accuracy_);
    figure.subtitle += fmt::format(" · best test accuracy {} at epoch {:.4g}", show_percent(*best, 2),
                                   test_epoch_[static_cast<std::size_t>(best - test_accuracy_.begin())]);
  }
  figure.panels.push_back(std::move(accuracy));
  return figure;
}

void Curve::write() {
  write_atomically(file_, to_svg(figure()));
  written_ = clock_.now();
}

}  // namespace paceline::observe

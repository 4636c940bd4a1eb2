// Two costs behind measured times: the seconds of a message and those of a byte.
#pragma once

#include <algorithm>
#include <optional>

namespace paceline::measure {

/// Least squares of a·α + b·β against y, over α ≥ 0 and β ≥ 0. Divided by the measured time, rows count by their relative errors: small
/// messages as much as large ones.
class Squares {
 public:
  void add(double a, double b, double y) { aa_ += a * a, ab_ += a * b, bb_ += b * b, ay_ += a * y, by_ += b * y; }

  struct Answer {
    double alpha = 0, beta = 0;
  };
  /// Nothing where the two cannot be told apart.
  std::optional<Answer> solve() const {
    const double determinant = aa_ * bb_ - ab_ * ab_;
    if (determinant <= 0) return std::nullopt;
    const Answer free{(ay_ * bb_ - by_ * ab_) / determinant, (by_ * aa_ - ay_ * ab_) / determinant};
    if (free.alpha >= 0 && free.beta >= 0) return free;
    // The sum of squares has one valley, so the best that is allowed lies on an edge.
    const Answer flat{std::max(0.0, ay_ / aa_), 0}, steep{0, std::max(0.0, by_ / bb_)};
    return loss(flat) < loss(steep) ? flat : steep;
  }

 private:
  double loss(const Answer& at) const {  // but for a constant
    return at.alpha * at.alpha * aa_ + 2 * at.alpha * at.beta * ab_ + at.beta * at.beta * bb_ - 2 * (at.alpha * ay_ + at.beta * by_);
  }

  double aa_ = 0, ab_ = 0, bb_ = 0, ay_ = 0, by_ = 0;
};

}  // namespace paceline::measure

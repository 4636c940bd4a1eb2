#include "fit.h"

#include <algorithm>
#include <cmath>

#include "paceline/comm/reduce.h"
#include "paceline/schedule/schedule.h"

namespace paceline::bench {
namespace {

schedule::Counts counts_of(const std::string& collective, const std::string& algorithm, int ranks, std::int64_t bytes) {
  for (const schedule::Collective kind : schedule::kCollectives)
    if (schedule::name_of(kind) == collective) {
      const schedule::Algorithm& made = schedule::algorithm_for(algorithm, kind).make;
      // As the ranks of one host run it.
      schedule::Problem problem{.collective = kind, .size = ranks, .count = bytes / 4, .per_host = ranks};
      problem.chunks = made.chunks(problem, bytes);
      return made.formula(problem);
    }
  return {};
}

/// Least squares of a·α + b·β against y, over α ≥ 0 and β ≥ 0.
class Squares {
 public:
  void add(double a, double b, double y) { aa_ += a * a, ab_ += a * b, bb_ += b * b, ay_ += a * y, by_ += b * y; }

  struct Answer {
    double alpha = 0, beta = 0;
  };
  /// Nothing where the two can not be told apart.
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

}  // namespace

std::map<std::int64_t, double> reduction_costs(const std::vector<std::int64_t>& sizes) {
  std::map<std::int64_t, double> costs;
  for (const std::int64_t bytes : sizes) {
    const std::int64_t elements = std::max<std::int64_t>(1, bytes / 4);
    std::vector<float> into(static_cast<std::size_t>(elements)), from(into.size());
    const double once = time_of([&] { comm::combine(comm::DType::f32, comm::ReduceOp::sum, into.data(), from.data(), elements); }, 0.05);
    costs[bytes] = once / (static_cast<double>(elements) * sizeof(float));
  }
  return costs;
}

std::optional<Fit> fit_costs(const std::string& collective, const std::string& algorithm, int ranks,
                             const std::map<std::int64_t, double>& seconds, const std::map<std::int64_t, double>& reduce_s_per_byte) {
  if (seconds.size() < 3) return std::nullopt;
  struct Message {
    double time, rounds, sent, reduction;  // reduction: its share of the time
  };
  std::vector<Message> messages;
  Squares squares;  // of relative errors, so that small messages count as much as large ones
  for (const auto& [bytes, time] : seconds) {
    const schedule::Counts counts = counts_of(collective, algorithm, ranks, bytes);
    const Message message{.time = time,
                          .rounds = static_cast<double>(counts.rounds),
                          .sent = static_cast<double>(counts.sent * 4),
                          .reduction = static_cast<double>(counts.reduced * 4) * reduce_s_per_byte.at(bytes)};
    messages.push_back(message);
    squares.add(message.rounds / time, message.sent / time, 1 - message.reduction / time);
  }
  const auto answer = squares.solve();
  if (!answer) return std::nullopt;
  Fit fit{.collective = collective, .algorithm = algorithm, .ranks = ranks};
  fit.alpha_s = answer->alpha;
  if (answer->beta > 0) fit.bytes_per_s = 1 / answer->beta;
  fit.reduce_s_per_byte = reduce_s_per_byte.rbegin()->second;
  std::vector<double> errors;
  for (const Message& message : messages) {
    const double predicted = message.rounds * answer->alpha + message.sent * answer->beta + message.reduction;
    errors.push_back(std::abs(predicted - message.time) / message.time);
  }
  fit.error = median(errors);
  return fit;
}

Row Fit::row(const std::string& engine) const {
  return {{"engine", engine},
          {"algorithm", algorithm},
          {"peer", ""},
          {"ranks", ranks},
          {"alpha_us", alpha_s * 1e6},
          {"B_gb_per_s", bytes_per_s ? Row(*bytes_per_s / 1e9) : Row()},
          {"g_ns_per_kb", reduce_s_per_byte * 1e12},
          {"fit_error", error}};
}

}  // namespace paceline::bench

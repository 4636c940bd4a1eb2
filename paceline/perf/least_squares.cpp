#include "paceline/perf/least_squares.h"

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"

namespace paceline::perf {
namespace {

constexpr int kMostRounds = 40;
constexpr double kStep = 1e-4;     // for derivatives, in units of the spread
constexpr double kEnough = 1e-4;   // the fit ends when the cost decreases by less than this share
constexpr double kLongest = 1e12;  // damping at which the fit gives up

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// Gaussian elimination with pivots; `a` is positive definite.
Vector solve(Matrix a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < n; ++k)
      if (std::abs(a[k][i]) > std::abs(a[pivot][i])) pivot = k;
    std::swap(a[i], a[pivot]), std::swap(b[i], b[pivot]);
    for (std::size_t k = i + 1; k < n; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j < n; ++j) a[k][j] -= factor * a[i][j];
      b[k] -= factor * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) b[i] -= a[i][j] * b[j];
    b[i] /= a[i][i];
  }
  return b;
}

/// Parameters in units of their spreads; 0 is the starting point.
class Problem {
 public:
  Problem(const std::vector<FitParameter>& parameters, const Residuals& residuals, double noise)
      : parameters_(parameters), residuals_(residuals), noise_(noise) {}

  Vector values(const Vector& at) const {
    Vector values(at.size());
    for (std::size_t i = 0; i < at.size(); ++i) values[i] = parameters_[i].start * std::exp(at[i] * parameters_[i].spread);
    return values;
  }
  Vector errors(const Vector& at) const {
    Vector errors = residuals_(values(at));
    for (double& error : errors) error /= noise_;
    return errors;
  }
  static double cost(const Vector& errors, const Vector& at) {
    double sum = 0;
    for (const double error : errors) sum += 2 * (std::sqrt(1 + error * error) - 1);
    for (const double each : at) sum += each * each;
    return sum;
  }

  /// The matrix and right-hand side of one Gauss–Newton step, without damping.
  std::pair<Matrix, Vector> normal(const Vector& at, const Vector& errors) const {
    const std::size_t n = at.size();
    Matrix slopes(n);
    for (std::size_t i = 0; i < n; ++i) {
      Vector moved = at;
      moved[i] += kStep;
      slopes[i] = this->errors(moved);
      for (std::size_t k = 0; k < errors.size(); ++k) slopes[i][k] = (slopes[i][k] - errors[k]) / kStep;
    }
    Matrix matrix(n, Vector(n, 0));
    Vector right(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < errors.size(); ++k) {
        const double weight = 1 / std::sqrt(1 + errors[k] * errors[k]);
        right[i] -= weight * slopes[i][k] * errors[k];
        for (std::size_t j = 0; j < n; ++j) matrix[i][j] += weight * slopes[i][k] * slopes[j][k];
      }
      matrix[i][i] += 1, right[i] -= at[i];
    }
    return {std::move(matrix), std::move(right)};
  }

 private:
  const std::vector<FitParameter>& parameters_;
  const Residuals& residuals_;
  double noise_;
};

}  // namespace

Fitted fit(const std::vector<FitParameter>& parameters, const Residuals& residuals, double noise) {
  const Problem problem(parameters, residuals, noise);
  Vector at(parameters.size(), 0), errors = problem.errors(at);
  double cost = Problem::cost(errors, at), damping = 1;
  int rounds = 0;
  for (bool done = false; !done && rounds < kMostRounds; ++rounds) {
    const auto [matrix, right] = problem.normal(at, errors);
    for (done = true; damping < kLongest; damping *= 5) {
      Matrix damped = matrix;
      for (std::size_t i = 0; i < at.size(); ++i) damped[i][i] += damping;
      Vector next = solve(std::move(damped), right);
      for (std::size_t i = 0; i < at.size(); ++i) next[i] += at[i];
      Vector there = problem.errors(next);
      const double found = Problem::cost(there, next);
      if (!(found < cost)) continue;
      done = cost - found < kEnough * cost;
      at = std::move(next), errors = std::move(there), cost = found;
      damping = std::max(damping / 5, 1e-6);
      break;
    }
  }
  return {problem.values(at), rounds, cost};
}

}  // namespace paceline::perf

#include "paceline/compress/feedback.h"

#include <cmath>
#include <cstring>

#include "paceline/compress/tensor_statistics.h"

namespace paceline::compress {

Feedback::Feedback(const Compressor& compressor, const CompressConfig& settings, double momentum, int workers, std::int64_t length)
    : keeps_(settings.feedback == "on" || (settings.feedback == "auto" && compressor.feedback)),
      has_velocity_(compressor.momentum_correction),
      momentum_(static_cast<float>(momentum)),
      norm_(settings.dgc_clip / std::sqrt(workers)),
      length_(static_cast<double>(length)) {}

void Feedback::add(const float* gradient, const Kept& kept) const {
  if (!has_velocity_) {
    for (std::int64_t i = 0; i < kept.count; ++i) kept.residual[i] += gradient[i];
    return;
  }
  const float scale = clip(gradient, kept.count);
  for (std::int64_t i = 0; i < kept.count; ++i) {
    kept.velocity[i] = momentum_ * kept.velocity[i] + scale * gradient[i];
    kept.residual[i] += kept.velocity[i];
  }
}

void Feedback::said(const Kept& kept) const {
  if (has_velocity_)
    for (std::int64_t i = 0; i < kept.count; ++i) kept.velocity[i] = kept.residual[i] == 0 ? 0 : kept.velocity[i];
  if (!keeps_) std::memset(kept.residual, 0, static_cast<std::size_t>(kept.count) * sizeof(float));
}

double Feedback::most_norm(std::int64_t count) const { return norm_ * std::sqrt(static_cast<double>(count) / length_); }

float Feedback::clip(const float* gradient, std::int64_t count) const {
  const double most = most_norm(count);
  if (most <= 0) return 1;
  const double norm = std::sqrt(statistics(gradient, count).squares);
  return norm > most ? static_cast<float>(most / norm) : 1.0F;
}

}  // namespace paceline::compress

#include "paceline/ps/transports/push_coder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/base/half.h"
#include "paceline/base/simd.h"
#include "paceline/optim/optimizer.h"
#include "paceline/ps/kernels.h"

namespace paceline::ps {
namespace {

using compress::Compressor;

/// A linear compressor of one round is a cast, and says all there is to say.
bool carries_pushes(const Compressor& compressor) {
  const compress::Layout one{.parts = {{.offset = 0, .count = 1, .rows = 1, .columns = 1}}, .length = 1};
  return compressor.coder != nullptr || compressor.linear({}, one, 0)->rounds() == 1;
}

const Compressor& compressor_of(const PushCompression& compression) {
  const Compressor& found = find(compress::compressors(), "compressor", compression.name).make;
  if (carries_pushes(found)) return found;
  std::vector<std::string_view> others;
  for (const auto& entry : compress::compressors())
    if (carries_pushes(entry.make)) others.push_back(entry.key);
  throw ConfigError(fmt::format("{} needs all workers at the same time and cannot compress a push to a server; choose one of {}",
                                compression.name, fmt::join(others, ", ")));
}

template <class Half>
struct Widen {
  struct Arguments {
    const Half* code;
    float* values;
    std::int64_t n;
  };
  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const auto [code, values, n] = arguments;
    for_each_element(n, [code = code, values = values](std::int64_t i) PACELINE_INLINE { values[i] = code[i].value(); });
  }
};

template <class Half>
void widen(std::span<const std::byte> code, float* values) {
  Simd<Widen<Half>>::run({reinterpret_cast<const Half*>(code.data()), values, static_cast<std::int64_t>(code.size() / sizeof(Half))});
}

}  // namespace

std::string PushCompression::describe() const {
  if (name.empty()) return "none";
  compress::CompressConfig copy = settings;
  Section section("compress", "");
  copy.describe(section);
  std::string text = name;
  for (const Field& field : section.fields()) text += fmt::format(" {}={}", field.key(), field.toml());
  return text;
}

void PushCompression::check(bool replica) const {
  if (name.empty()) return;
  if (replica) throw ConfigError("this rule's workers push parameters, and only gradients can be compressed; leave comm.compression out");
  compressor_of(*this);
}

PushEncoder::PushEncoder(const PushCompression& compression, const compress::Layout& range, int worker, std::int64_t place)
    : compression_(compression),
      range_(range),
      moment_{.seed = compression.seed, .rank = worker, .place = static_cast<std::uint64_t>(place)},
      residual_(static_cast<std::size_t>(range.length)) {
  const Compressor& compressor = compressor_of(compression);
  feedback_ = compression.settings.feedback == "on" || (compression.settings.feedback == "auto" && compressor.feedback);
  if (compressor.momentum_correction) momentum_.resize(residual_.size());
  if (compressor.coder) coder_ = compressor.coder(compression.settings);
  else cast_ = compressor.linear(compression.settings, range, compression.seed);
  if (coder_) code_.resize(static_cast<std::size_t>(coder_->bound(range)));
}

std::span<const std::byte> PushEncoder::encode(float* gradient, double epoch) {
  accumulate(gradient);
  moment_.epoch = epoch;
  std::span<const std::byte> code;
  if (coder_) {
    code = std::span(code_).first(static_cast<std::size_t>(coder_->encode(range_, residual_.data(), moment_, code_.data())));
  } else {
    const compress::Round round = cast_->round(0, residual_.data());
    code = std::as_bytes(std::span(static_cast<const std::uint16_t*>(round.data), static_cast<std::size_t>(round.count)));
    cast_->finish(residual_.data(), gradient);  // which has the rounded values now
  }
  ++moment_.step;
  // Momentum stays only where nothing was said. What is not finite must not spoil the next ones: the residual begins anew.
  for (std::size_t i = 0; i < momentum_.size(); ++i) momentum_[i] = residual_[i] == 0 ? 0 : momentum_[i];
  spoilt_ = (cast_ && !all_finite(gradient, range_.length)) || !all_finite(residual_.data(), range_.length) ||
            !all_finite(momentum_.data(), std::ssize(momentum_));
  if (spoilt_) std::ranges::fill(momentum_, 0.0f);
  if (spoilt_ || !feedback_) std::ranges::fill(residual_, 0.0f);
  return code;
}

void PushEncoder::accumulate(const float* gradient) {
  if (momentum_.empty()) {
    for (std::size_t i = 0; i < residual_.size(); ++i) residual_[i] += gradient[i];
    return;
  }
  const auto factor = static_cast<float>(compression_.momentum);
  const float scale = local_clip(gradient);
  for (std::size_t i = 0; i < residual_.size(); ++i) {
    momentum_[i] = factor * momentum_[i] + scale * gradient[i];
    residual_[i] += momentum_[i];
  }
}

/// Gradients add up before they are sent, so each worker clips its own, to a share of the norm that the sum may have.
float PushEncoder::local_clip(const float* gradient) const {
  if (compression_.settings.dgc_clip <= 0) return 1;
  const double most = compression_.settings.dgc_clip / std::sqrt(compression_.workers);
  const double norm = std::sqrt(optim::squared_norm(gradient, range_.length));
  return norm > most ? static_cast<float>(most / norm) : 1.0f;
}

PushDecoder::PushDecoder(const PushCompression& compression, const compress::Layout& range) : range_(range) {
  const Compressor& compressor = compressor_of(compression);
  if (compressor.coder) {
    coder_ = compressor.coder(compression.settings);
  } else {
    const std::vector<float> zeros(static_cast<std::size_t>(range.length));
    cast_ = compressor.linear(compression.settings, range, compression.seed)->round(0, zeros.data()).type;
  }
}

std::int64_t PushDecoder::bound() const { return coder_ ? coder_->bound(range_) : range_.length * 2; }

void PushDecoder::decode(std::span<const std::byte> code, float* gradient) const {
  if (coder_) {
    std::memset(gradient, 0, static_cast<std::size_t>(range_.length) * sizeof(float));
    return coder_->decode_add(range_, code, 1, gradient);
  }
  if (static_cast<std::int64_t>(code.size()) != bound())
    throw DataError("a compressed push", fmt::format("expected {} bytes, got {}", bound(), code.size()));
  if (cast_ == compress::Round::Type::f16) widen<Float16>(code, gradient);
  else widen<BFloat16>(code, gradient);
}

}  // namespace paceline::ps

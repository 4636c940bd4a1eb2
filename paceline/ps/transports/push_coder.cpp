#include "paceline/ps/transports/push_coder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/base/finite.h"
#include "paceline/base/half.h"
#include "paceline/base/simd.h"

namespace paceline::ps {
namespace {

using compress::Compressor;

/// A linear compressor of one round is a cast, whose code is complete.
bool carries_pushes(const Compressor& compressor) {
  const compress::RangeLayout one{.parts = {{.offset = 0, .count = 1, .rows = 1, .columns = 1}}, .length = 1};
  return compressor.coder != nullptr || compressor.linear({}, one, 0)->rounds() == 1;
}

const Compressor& compressor_of(const PushCompression& compression) {
  const Compressor& found = find(compress::compressors(), "compressor", compression.name).make;
  if (carries_pushes(found)) return found;
  std::vector<std::string_view> others;
  for (const auto& entry : compress::compressors())
    if (carries_pushes(entry.make)) others.push_back(entry.key);
  throw ConfigError(fmt::format("{} needs all workers at the same time, so it cannot compress a push to a server; choose one of {}",
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
  if (replica) throw ConfigError("this rule's workers push parameters, but only gradients can be compressed; leave comm.compression out");
  compressor_of(*this);
}

PushEncoder::PushEncoder(const PushCompression& compression, const compress::RangeLayout& range, int worker, std::int64_t place,
                         std::int64_t length)
    : feedback_(compressor_of(compression), compression.settings, compression.momentum, compression.workers, length),
      range_(range),
      context_{.seed = compression.seed, .rank = worker, .place = static_cast<std::uint64_t>(place)},
      residual_(static_cast<std::size_t>(range.length)) {
  const Compressor& compressor = compressor_of(compression);
  if (feedback_.has_velocity()) velocity_.resize(residual_.size());
  if (compressor.coder) coder_ = compressor.coder(compression.settings);
  else cast_ = compressor.linear(compression.settings, range, compression.seed);
  if (coder_) code_.resize(static_cast<std::size_t>(coder_->bound(range)));
}

std::span<const std::byte> PushEncoder::encode(float* gradient, double epoch) {
  const compress::Feedback::Kept kept{.residual = residual_.data(), .velocity = velocity_.data(), .count = range_.length};
  feedback_.add(gradient, kept);
  context_.epoch = epoch;
  std::span<const std::byte> code;
  if (coder_) {
    code = std::span(code_).first(static_cast<std::size_t>(coder_->encode(range_, residual_.data(), context_, code_.data())));
  } else {
    const compress::Round round = cast_->round(0, residual_.data());
    code = std::as_bytes(std::span(static_cast<const std::uint16_t*>(round.data), static_cast<std::size_t>(round.count)));
    cast_->finish(residual_.data(), gradient);  // which has the rounded values now
  }
  ++context_.step;
  overflowed_ = (cast_ && !all_finite(gradient, range_.length)) || !all_finite(residual_.data(), range_.length) ||
                !all_finite(velocity_.data(), std::ssize(velocity_));
  feedback_.said(kept);
  if (overflowed_) {  // it must not contaminate later codes
    std::ranges::fill(residual_, 0.0f);
    std::ranges::fill(velocity_, 0.0f);
  }
  return code;
}

PushDecoder::PushDecoder(const PushCompression& compression, const compress::RangeLayout& range) : range_(range) {
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

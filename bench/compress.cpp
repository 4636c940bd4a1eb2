// Encoding and decoding gradients on one core, by the speed of a plain copy on the same core.
//
// GB/s are of uncompressed bytes. memcpy reads and writes each of them once, as encoding does (which reads values and writes what is left
// of them) and decoding too (which reads and writes the sum); the codes themselves come on top. Measurements alternate, and medians count.
#include <cstring>

#include "benchmark.h"
#include "paceline/base/random.h"
#include "paceline/base/text.h"
#include "paceline/compress/compressor.h"

namespace paceline::bench {
namespace {

using compress::CompressConfig;
using compress::Compressor;
using compress::RangeLayout;

/// Matrices of ResNet-50's third stage and the vectors that go with them, up to so many elements; the rest is one vector.
RangeLayout layout_of(std::int64_t elements) {
  constexpr std::int64_t kRows = 256, kColumns = 2304;
  RangeLayout layout;
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    layout.parts.push_back({.offset = layout.length, .count = rows * columns, .rows = rows, .columns = columns});
    layout.length += rows * columns;
  };
  while (layout.length + kRows * kColumns + 2 * kRows <= elements) add(kRows, kColumns), add(1, 2 * kRows);
  if (layout.length < elements) add(1, elements - layout.length);
  return layout;
}

/// Normal values of which 1% exceed the default threshold.
std::vector<float> gradient_of(std::int64_t elements) {
  RandomStream stream(1, Purpose::data);
  const float deviation = static_cast<float>(CompressConfig().threshold) / 2.576f;
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) value = deviation * stream.normal();
  return values;
}

double seconds_of(const std::function<void()>& work) {
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  work();
  return seconds(clock.now() - began);
}

struct CodeTimes {
  std::vector<double> encode, decode, copy;
  std::int64_t bytes = 0;  // on the wire, for one worker
};

void measure_coder(const Compressor& compressor, const RangeLayout& layout, std::vector<float>& values, std::vector<float>& sum, int round,
                   CodeTimes& times) {
  const auto coder = compressor.coder({});
  std::vector<std::byte> code(static_cast<std::size_t>(coder->bound(layout)));    // zeros: the pages are there
  const compress::CodingContext context{.seed = 1, .step = round, .epoch = 100};  // long after any warm-up
  std::vector<float> again = values;
  coder->encode(layout, again.data(), context, code.data());  // so is the coder's own memory
  times.encode.push_back(seconds_of([&] { times.bytes = coder->encode(layout, values.data(), context, code.data()); }));
  const std::span<const std::byte> used(code.data(), static_cast<std::size_t>(times.bytes));
  times.decode.push_back(seconds_of([&] { coder->decode_add(layout, used, 0.5f, sum.data()); }));
}

void measure_linear(const Compressor& compressor, const RangeLayout& layout, std::vector<float>& values, std::vector<float>& mean,
                    CodeTimes& times) {
  const auto linear = compressor.linear({}, layout, 1);
  times.bytes = 0;
  times.encode.push_back(seconds_of([&] {
    for (int index = 0; index < linear->rounds(); ++index) {
      const compress::Round sent = linear->round(index, values.data());
      times.bytes += sent.count * (sent.type == compress::Round::Type::f32 ? 4 : 2);
    }
  }));
  times.decode.push_back(seconds_of([&] { linear->finish(values.data(), mean.data()); }));
}

}  // namespace

std::vector<Row> bench_compress(const Options& options, const Say& say) {
  std::vector<std::string> keys = items_of(options.compressors);
  if (keys.empty())
    for (const Listing& row : listing(compress::compressors())) keys.emplace_back(row.key);
  std::vector<const Entry<Compressor>*> chosen;
  chosen.reserve(keys.size());
  for (const std::string& key : keys) chosen.push_back(&find(compress::compressors(), "compressor", key));

  const RangeLayout layout = layout_of(options.elements);
  const std::vector<float> gradient = gradient_of(layout.length);
  std::vector<float> values(gradient.size()), sum(gradient.size()), copy(gradient.size());
  std::vector<Row> rows;
  for (const Entry<Compressor>* entry : chosen) {
    say(std::string(entry->key));
    CodeTimes times;
    for (int round = 0; round < options.rounds; ++round) {
      times.copy.push_back(seconds_of([&] { std::memcpy(copy.data(), gradient.data(), sizeof(float) * copy.size()); }));
      values = gradient;
      if (entry->make.coder != nullptr) measure_coder(entry->make, layout, values, sum, round, times);
      else measure_linear(entry->make, layout, values, sum, times);
    }
    const double bytes = sizeof(float) * static_cast<double>(layout.elements());
    const auto speed = [&](const std::vector<double>& taken) { return bytes / median(taken) / 1e9; };
    rows.push_back({{"compressor", entry->key},
                    {"encode_gb_per_s", speed(times.encode)},
                    {"decode_gb_per_s", speed(times.decode)},
                    {"memcpy_gb_per_s", speed(times.copy)},
                    {"wire_bytes", times.bytes},
                    {"ratio", bytes / static_cast<double>(times.bytes)}});
  }
  return rows;
}

}  // namespace paceline::bench

// What a worker makes of its gradient before it pushes it.
#include "paceline/ps/transports/push_coder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::ps {
namespace {

constexpr std::int64_t kLength = 96;

/// The squared norm of what `servers` servers get of a gradient of ones.
double pushed_to(std::int64_t servers) {
  PushCompression compression{.name = "dgc", .momentum = 0.9, .workers = 4};
  compression.settings.density = 1, compression.settings.warmup_epochs = 0, compression.settings.dgc_clip = 0.5;
  const std::int64_t count = kLength / servers;
  const compress::RangeLayout range{.parts = {{.offset = 0, .count = count, .rows = 1, .columns = count}}, .length = count};
  double squares = 0;
  for (std::int64_t i = 0; i < servers; ++i) {
    std::vector<float> gradient(static_cast<std::size_t>(count), 1.0F);
    PushEncoder encoder(compression, range, 0, i * count, kLength);
    PushDecoder(compression, range).decode(encoder.encode(gradient.data(), 0), gradient.data());
    for (const float value : gradient) squares += static_cast<double>(value) * value;
  }
  return squares;
}

TEST(PushEncoder, HoweverManyServersTheNormIsClippedOnce) {
  const double most = 0.5 / std::sqrt(4);
  for (const std::int64_t servers : {1, 4}) EXPECT_NEAR(std::sqrt(pushed_to(servers)), most, 1e-5) << servers;
}

}  // namespace
}  // namespace paceline::ps

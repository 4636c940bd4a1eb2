// The costs behind measured times: t = rounds·α + sent/B + reduced·g, fitted to an algorithm's times at several sizes.
#pragma once

#include <map>
#include <optional>

#include "benchmark.h"

namespace paceline::bench {

struct Fit {
  std::string collective, algorithm;
  int ranks = 0;
  double alpha_s = 0, bytes_per_s = 0, reduce_s_per_byte = 0;
  double error = 0;  // median of |predicted − measured| / measured

  Row row(const std::string& engine) const;
};

/// Nothing where the algorithm's formula has fewer numbers than there are times. B and g can only be told apart where an algorithm's sent
/// and reduced bytes are not proportional to each other; elsewhere g is what this machine's own reduction takes.
std::optional<Fit> fit_costs(const std::string& collective, const std::string& algorithm, int ranks,
                             const std::map<std::int64_t, double>& seconds);

}  // namespace paceline::bench

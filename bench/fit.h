// The costs behind measured times: t = rounds·α + sent/B + reduced·g, fitted to an algorithm's times at several sizes.
#pragma once

#include <map>
#include <optional>

#include "benchmark.h"

namespace paceline::bench {

struct Fit {
  std::string collective, algorithm;
  int ranks = 0;
  double alpha_s = 0;
  std::optional<double> bytes_per_s = {};  // nothing where the bytes that are sent cost no time that could be told
  double reduce_s_per_byte = 0;            // of the longest message
  double error = 0;                        // median of |predicted − measured| / measured

  Row row(const std::string& engine) const;
};

/// By message size: seconds that this machine takes to add one byte of a buffer of that size to another, wherever its caches keep them.
std::map<std::int64_t, double> reduction_costs(const std::vector<std::int64_t>& sizes);

/// α and 1/B that fit best and are not negative; g is what `reduce_s_per_byte` says, since in most algorithms the bytes that are sent and
/// those that are reduced are proportional, and no fit can tell them apart. Nothing where the times are fewer than the formula's numbers.
std::optional<Fit> fit_costs(const std::string& collective, const std::string& algorithm, int ranks,
                             const std::map<std::int64_t, double>& seconds, const std::map<std::int64_t, double>& reduce_s_per_byte);

}  // namespace paceline::bench

// ComputeTimes from a measured profile (profile.h). If a tensor axis shares the network, whose parts were not measured: the measured
// seconds of a unit, times a rank's share of them by the roofline.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "paceline/perf/profile.h"
#include "paceline/perf/roofline_times.h"

namespace paceline::perf {

class ProfileTimes final : public ComputeTimes {
 public:
  /// `table` must outlive it. ConfigError if it is that of another network, or lacks the optimizer. `workers`: the number that compute on a
  /// host at the same time; if the table was measured with another number, each worker had another share of the cores. 0: the number of the
  /// table.
  ProfileTimes(const graph::Graph& graph, const ProfileTable& table, const std::string& optimizer, const Device& device,
               const RooflineSettings& settings = {}, std::int64_t workers = 0);

  double seconds(const schedule::Action& action, std::int64_t samples) const override;
  double around_seconds(std::int64_t samples) const override;
  Doubt doubt(std::span<const std::int64_t> samples) const override;

 private:
  using Key = std::pair<schedule::Action::Work, std::int64_t>;
  struct Sums {
    std::vector<double> seconds;  // of units [0, i)
    std::set<std::string> notes;  // about them
  };
  const Sums& sums_for(const Key& key) const;
  double unit_seconds(int unit, const Key& key, std::set<std::string>& notes) const;
  /// The factor by which whole steps were faster than their parts, if they were.
  double haste(std::int64_t samples) const;

  const ProfileTable& table_;
  std::string optimizer_;
  RooflineTimes local_;                   // updates in host memory, codes, and a rank's share of the tensor axis
  std::unique_ptr<RooflineTimes> whole_;  // if there is a tensor axis
  bool offload_;
  std::int64_t parameters_ = 0;
  std::set<std::string> notes_;  // about every step
  mutable std::map<Key, Sums> sums_;
};

}  // namespace paceline::perf

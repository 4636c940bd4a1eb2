// The measured times of a network's units on one device: seconds of each pass at some batch sizes. `paceline profile` measures them with
// the passes of a run (measure/); the performance model uses a profile, if there is one, instead of the roofline.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/perf/cluster.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

/// Seconds of one unit for one micro-batch. The loss is part of the last unit's forward pass and evaluation.
struct UnitSeconds {
  double forward = 0;
  double backward = 0;                               // gradients of inputs and weights together; for the first unit, only those of weights
  double input_gradients = 0, weight_gradients = 0;  // the two separately
  double evaluation = 0;                             // forward, without keeping anything
  bool operator==(const UnitSeconds&) const = default;
};

struct UnitProfile {
  std::string name;
  std::int64_t parameters = 0;
  std::map<std::int64_t, UnitSeconds> seconds = {};  // by samples
  bool operator==(const UnitProfile&) const = default;
};

/// Measurements in one precision, with this many workers of a host computing at the same time, each with its share of the cores.
struct ProfileTable {
  Precision precision = Precision::fp32;
  std::int64_t workers = 1;  // per host
  std::int64_t threads = 1;  // per worker
  std::vector<UnitProfile> units = {};
  std::map<std::string, double> update_s = {};  // by optimizer: seconds for each element of the arena
  double jitter = 0;                            // relative standard deviation of a step's passes, at the batch size where it is smallest
  /// By samples: the time of a whole step minus that of its passes and its update (the next batch, bookkeeping). Negative if the step is
  /// faster than its parts, as a recorded step on a GPU is. Empty: not measured.
  std::map<std::int64_t, double> around_s = {};
  bool operator==(const ProfileTable&) const = default;
};

/// Seconds, and whether they were measured. Between two measured batches, they are interpolated linearly; beyond these, extrapolated from
/// the two nearest, but never below zero. If only one batch was measured, they are proportional.
struct Timed {
  double seconds = 0;
  bool outside = false;   // the batch is outside the measured range
  std::string note = {};  // "batch 512 lies outside of what was measured (8 to 128)"
};

struct Profile {
  std::string network, device;
  std::vector<ProfileTable> tables;

  /// The table for this precision with the nearest number of workers (the same, else the next larger, else the largest). ConfigError if
  /// there is none for this precision; its message says what was measured, and how to measure more.
  const ProfileTable& table(Precision precision, std::int64_t workers) const;
  /// "cpu" or "gpu", as Device::kind: `device` is the name of a GPU, or "cpu".
  std::string kind() const;
  bool operator==(const Profile&) const = default;
};

/// ConfigError if the profile is that of another network, judged by its name and by the parameters of its units, which depend on widths and
/// classes. `source`: the file.
void require_network(const Profile& profile, const graph::Graph& graph, const std::string& source);

/// ConfigError if the profile was measured on another kind of device than the cluster has. A cluster of unknown kind accepts any.
void require_device(const Profile& profile, const Cluster& cluster, const std::string& source);

/// `work` is forward, backward, input_gradients or weight_gradients.
Timed seconds_of(const ProfileTable& table, std::size_t unit, schedule::Action::Work work, double samples);
Timed evaluation_seconds(const ProfileTable& table, std::size_t unit, double samples);
/// ConfigError if no such optimizer was measured.
double update_seconds(const ProfileTable& table, const std::string& optimizer, double elements);

/// The time of a step of this many samples around its passes, by ProfileTable::around_s: interpolated linearly between measured batches,
/// constant beyond them.
double around_seconds(const ProfileTable& table, double samples);

/// Parses the text of a profile (JSON). Throws ConfigError with `source` and the place of the error.
Profile read_profile(const std::string& text, const std::string& source);
Profile find_profile(const std::string& file);
/// The text from which read_profile() returns the same profile.
std::string to_json(const Profile& profile);

}  // namespace paceline::perf

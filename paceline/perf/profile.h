// What the units of a network cost on one device, by the clock: seconds of each pass at some batch sizes. `paceline profile` measures it
// with the passes of a run (measure/); the performance model takes it in place of the roofline where there is one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/perf/cluster.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

/// Seconds of one unit for one micro-batch. The loss counts to the last unit's forward pass and evaluation.
struct UnitSeconds {
  double forward = 0;
  double backward = 0;                               // gradients of inputs and weights together; of the first unit, of weights alone
  double input_gradients = 0, weight_gradients = 0;  // apart
  double evaluation = 0;                             // forward, nothing kept
  bool operator==(const UnitSeconds&) const = default;
};

struct UnitProfile {
  std::string name;
  std::int64_t parameters = 0;
  std::map<std::int64_t, UnitSeconds> seconds = {};  // by samples
  bool operator==(const UnitProfile&) const = default;
};

/// What was measured in one precision, while this many workers of a host computed at the same time, each with its share of the cores.
struct ProfileTable {
  Precision precision = Precision::fp32;
  std::int64_t workers = 1;  // of a host
  std::int64_t threads = 1;  // of each worker
  std::vector<UnitProfile> units = {};
  std::map<std::string, double> update_s = {};  // by optimizer: seconds for each element of the arena
  double jitter = 0;                            // standard deviation of a step's passes, as a share of them; of the batch where it is least
  /// By samples: how much longer than its passes and its update a whole step of a run takes (the next batch, the books); negative where the
  /// run is faster than its pieces, as a recorded step of a GPU is. Empty: not measured.
  std::map<std::int64_t, double> around_s = {};
  bool operator==(const ProfileTable&) const = default;
};

/// Seconds, and whether they were measured: at a batch between two measured ones they lie on the line through both, beyond them on the
/// line through the two nearest, never below zero, and in proportion where one batch was measured.
struct Timed {
  double seconds = 0;
  bool outside = false;   // of the measured batches
  std::string note = {};  // "batch 512 lies outside of what was measured (8 to 128)"
};

struct Profile {
  std::string network, device;
  std::vector<ProfileTable> tables;

  /// The table of this precision and of the nearest number of workers (as many, else the next larger, else the largest). ConfigError with
  /// what was measured, and the command, where there is none of this precision.
  const ProfileTable& table(Precision precision, std::int64_t workers) const;
  /// "cpu" or "gpu", as Device::kind: `device` is the name of a GPU, or "cpu".
  std::string kind() const;
  bool operator==(const Profile&) const = default;
};

/// ConfigError if the profile is of another network: by its name, or by the parameters of its units, as another width or other classes
/// have them. `source`: the file.
void require_network(const Profile& profile, const graph::Graph& graph, const std::string& source);

/// ConfigError if the profile was measured on another kind of device than the cluster has. A cluster that does not say its kind takes any.
void require_device(const Profile& profile, const Cluster& cluster, const std::string& source);

/// `work` is forward, backward, input_gradients or weight_gradients.
Timed seconds_of(const ProfileTable& table, std::size_t unit, schedule::Action::Work work, double samples);
Timed evaluation_seconds(const ProfileTable& table, std::size_t unit, double samples);
/// ConfigError if no such optimizer was measured.
double update_seconds(const ProfileTable& table, const std::string& optimizer, double elements);

/// What a step of this many samples takes around its passes, by ProfileTable::around_s: on the line between two measured batches, beyond
/// them as at the nearest.
double around_seconds(const ProfileTable& table, double samples);

/// Of the text of a profile (JSON). Throws ConfigError with `source` and the place in it.
Profile read_profile(const std::string& text, const std::string& source);
Profile find_profile(const std::string& file);
/// What reads back to the same profile.
std::string to_json(const Profile& profile);

}  // namespace paceline::perf

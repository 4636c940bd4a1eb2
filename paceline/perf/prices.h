// The cost of a step's communication: collectives, messages between stages and replicas, visits to parameter servers.
#pragma once

#include <array>
#include <string>
#include <unordered_map>

#include "paceline/perf/collective_costs.h"
#include "paceline/perf/placement.h"
#include "paceline/perf/servers.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// The time of one action, and the bytes that it sends.
struct Price {
  double seconds = 0, bytes = 0;
  double doubt = 0;               // relative uncertainty of the seconds
  std::string_view outside = {};  // CollectiveCost::outside
};

/// Programs repeat the same few exchanges, so the cost of each is computed once. The constructor's arguments must outlive it.
class Prices {
 public:
  Prices(const Cluster& cluster, const schedule::ProgramSettings& settings, const CostOptions& options, CollectiveCosts& collectives);

  /// The price of a communicate action in the program of a stage. A receive costs nothing in addition to its send. `times`: for the updates
  /// of servers.
  Price of(const schedule::Action& action, int stage, const ComputeTimes& times);
  const CollectiveCost& collective(const schedule::Action& action);
  /// Seconds for mapping memory before the exchange, or releasing it afterwards, if ranks only keep their own parts (parallel.zero=2 and
  /// 3).
  double page_seconds(const schedule::Action& action) const;

  /// How long one worker's push or pull keeps the servers busy.
  double visit(const schedule::Action& action, const ComputeTimes& times) const;

  const Placement& place() const { return place_; }

 private:
  struct Key {
    schedule::Action::Exchange exchange;
    schedule::Action::Axis axis;
    std::int64_t elements;
    double element_bytes;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  struct Known {
    std::string algorithm;
    Price price;
  };
  /// Passes repeat the same exchange many times in a row.
  struct Last {
    Key key;
    Known* known = nullptr;
  };
  double doubt(const CollectiveCost& cost, schedule::Action::Axis axis) const;

  double send_seconds(const schedule::Action& action, int stage) const;
  double server_seconds(const schedule::Action& action, const ComputeTimes& times) const;
  double local_server_seconds(const schedule::Action& action, const ComputeTimes& times) const;
  /// A server's update of its part of the parameters, if the action brings it a gradient.
  double update_seconds(const schedule::Action& action, const ComputeTimes& times) const;
  ServerLoad load(double bytes) const;

  Placement place_;
  const Device& device_;
  const schedule::ProgramSettings& settings_;
  CostOptions options_;
  CollectiveCosts& collectives_;
  std::array<schedule::Costs, kProgramAxes> costs_;
  ByAxis link_doubt_;
  std::unordered_map<Key, Known, Hash> known_;
  std::array<std::array<Last, kProgramAxes>, static_cast<std::size_t>(schedule::Action::Exchange::none)> last_;
};

}  // namespace paceline::perf

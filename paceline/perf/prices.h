// What the communication of one step costs: collectives, messages between stages and replicas, visits to parameter servers.
#pragma once

#include <array>
#include <string>
#include <unordered_map>

#include "paceline/perf/collective_costs.h"
#include "paceline/perf/placement.h"
#include "paceline/perf/servers.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// What one action takes, and sends.
struct Price {
  double seconds = 0, bytes = 0;
  double doubt = 0;               // how far the seconds may be off, as a share of them
  std::string_view outside = {};  // CollectiveCost::outside
};

/// Programs repeat the same few exchanges, so each is looked up once. What it is made from outlives it.
class Prices {
 public:
  Prices(const Cluster& cluster, const schedule::ProgramSettings& settings, const CostOptions& options, CollectiveCosts& collectives);

  /// Of a communicate action in the program of a stage. A receive costs nothing beside its send. `times`: what updates cost a server.
  Price of(const schedule::Action& action, int stage, const ComputeTimes& times);
  const CollectiveCost& collective(const schedule::Action& action);
  /// Of the memory that comes before the exchange, or goes behind it, where ranks keep their own parts alone (parallel.zero=2 and 3).
  double page_seconds(const schedule::Action& action) const;

  /// How long one worker's visit keeps the servers from the next, by push or pull.
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
  /// Passes repeat their exchanges, one by one.
  struct Last {
    Key key;
    Known* known = nullptr;
  };
  double doubt(const CollectiveCost& cost, schedule::Action::Axis axis) const;

  double send_seconds(const schedule::Action& action, int stage) const;
  double server_seconds(const schedule::Action& action, const ComputeTimes& times) const;
  double local_server_seconds(const schedule::Action& action, const ComputeTimes& times) const;
  /// A server's update of its part of the parameters, where the action brings it a gradient.
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

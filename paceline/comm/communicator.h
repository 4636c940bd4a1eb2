// A group of ranks that communicate, whether they are threads, processes or hosts.
//
//   auto comm = connect(config);
//   comm->run(allreduce(gradients, {.op = ReduceOp::mean}));             // waits
//   Work work = comm->start(allreduce(bucket)); …; work.wait();         // continues meanwhile
//
// Collectives must be called in the same order on all ranks; sends and receives match by peer and tag and wait for nobody else. An
// operation that does not end within its deadline, or whose peer died, throws PeerError with rank, operation and sequence; the communicator
// is then unusable. Nothing aborts and nothing hangs.
//
// GPU memory is accessed in stream order (buffer.h): an operation follows what was put on the stream before the call, and what is put there
// after run() or Work::wait() follows the operation. These calls may return before the GPU has finished.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/topology.h"
#include "paceline/comm/work.h"

namespace paceline::comm {

struct World;

/// [comm] of a recipe.
struct CommConfig {
  std::string engine = "auto";
  std::string algorithm = "auto";
  double deadline_s = 30;
  double silence_s = 4;
  bool record = true;
  bool check = false;
  std::vector<std::int64_t> fail_at;  // rank, operation
  std::int64_t per_host = 0;          // this many neighbouring ranks count as a host; 0: as detected
  double link_gbit_per_s = 0;         // of each host; 0: not limited
  double link_latency_us = 0, link_jitter_us = 0;
  bool repeatable =
      true;  // auto chooses by built-in costs, not by measured ones, so that every run chooses alike. In a recipe: train.repeatable

  Nanoseconds deadline() const { return Nanoseconds(static_cast<std::int64_t>(deadline_s * 1e9)); }
  Nanoseconds silence() const { return Nanoseconds(static_cast<std::int64_t>(silence_s * 1e9)); }
  /// The deadline for ranks that have not connected yet. It is longer than a short deadline because programs take time to load, and grows
  /// with the number of ranks that share a core.
  Nanoseconds connect_deadline(const World& world) const;
  bool shapes() const { return link_gbit_per_s > 0 || link_latency_us > 0 || link_jitter_us > 0; }
  void describe(Section& section);
  /// Throws ConfigError if the settings are impossible with this many ranks.
  void check_for(int ranks) const;
};

/// Zeroed memory that lives as long as anyone holds it.
using Memory = std::shared_ptr<void>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Topology topology() const = 0;
  /// By rank: the number of its host. The numbers mean nothing, but ranks of one host have the same.
  virtual std::vector<int> hosts() const;
  virtual std::string engine() const = 0;
  /// The number in the whole run of a rank of this group, which may have been split off. Errors use the run's numbers.
  virtual int name_in_run(int rank) const { return rank; }

  virtual Work start(const Operation& operation) = 0;
  /// Starts and waits. Faster than start(…).wait(), because the caller's thread does the work.
  virtual void run(const Operation& operation) { start(operation).wait(); }

  /// The bytes that this rank sends in a collective, by the schedule that executes it; by a ring's where an engine has algorithms of its
  /// own. To be asked after a collective of the same kind and length was made: the first choice of an algorithm may measure.
  virtual std::int64_t bytes_sent(const Operation& operation);

  /// The ranks that give the same colour become a communicator of their own, in the order of (key, rank). Collective.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Memory in which this group's collectives are fastest: on one host, memory that all its ranks can read.
  virtual Memory allocate(std::int64_t bytes) = 0;
};

}  // namespace paceline::comm

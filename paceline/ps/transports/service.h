// A server for workers of other processes, and a worker's access to it, over gRPC (grpc.h) or between the ranks of a communicator
// (ranks.h).
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/ps/client.h"
#include "paceline/ps/cluster.h"
#include "paceline/ps/layout.h"
#include "paceline/ps/transports/push_coder.h"
#include "paceline/ps/transports/task.h"

namespace paceline::ps {

/// For gRPC: what both sides prove to each other (comm/handshake.h), and the PEM files of one side. With all three of these, mutual TLS.
struct Security {
  std::string secret = {};  // the job's key
  std::string certificate = {}, key = {}, authority = {};
  bool allow_insecure = false;  // plain text to other hosts
};

/// As the recipe and the job define it.
inline Security security_of(const PsConfig& config, const Cluster& cluster) {
  return {.secret = cluster.key,
          .certificate = config.certificate,
          .key = config.key,
          .authority = config.authority,
          .allow_insecure = config.allow_insecure};
}

struct ServiceOptions {
  std::string address = "127.0.0.1:0";  // gRPC: where to listen; port 0: a free one
  std::int64_t begin = 0, end = -1;     // the host's range of the arena; −1: to its end
  Security security = {};               // gRPC
  PushCompression compression = {};
  std::string terms = {};  // what workers must agree on (cluster.h)
  bool durable = false;    // the host has a journal, so that acknowledged pushes survive a restart
  /// A task for a worker, from the first server only; or none, for now or, if `finished`, for good. May wait for up to a second, after
  /// which the worker asks again. A worker that `visits` begins with a pull, so it gets no task before it may pull; otherwise it is in the
  /// middle of its period. Called by many threads; between ranks by a single one, which must not wait.
  std::function<std::optional<Task>(int worker, bool visits, bool& finished)> next_task = {};
  /// May be called more than once per task, and by a worker that has lost it; the task's step identifies it.
  std::function<void(int worker, const Task& task, double loss_sum, double right, std::int64_t targets)> task_done = {};
  /// The worker that had the task is gone.
  std::function<void(int worker, const Task& task)> task_lost = {};
  /// A checkpoint is being made: whether the first server wants the worker's state, which is then passed to `keep`.
  std::function<bool(int worker)> wants_state = {};
  std::function<void(int worker, std::string_view state)> keep = {};
  /// For the other servers: their state, for the checkpoint that the first one writes, and the version in the checkpoint that they started
  /// from.
  std::function<std::string()> state = {};
  std::int64_t resumed = -1;
  /// The service has ended, for this reason.
  std::function<void(const std::exception_ptr& why)> failed = {};
};

class Service {
 public:
  virtual ~Service() = default;
  virtual std::vector<int> workers() const = 0;  // present now
  /// All workers that there can ever be have joined and left.
  virtual bool deserted() const { return false; }
};

/// A worker in another process than the servers.
class RemoteClient : public Client {
 public:
  virtual int worker() const = 0;
  /// Waits for work and, if the worker `visits` the servers before it, until it may pull. Nullopt if there is no more work.
  virtual std::optional<Task> next(bool visits = true) = 0;
  virtual void done(const Task& task, double loss_sum, double right, std::int64_t targets) = 0;
  /// What next() sends to the first server when that makes a checkpoint.
  virtual void on_save(std::function<std::string()> state) = 0;
  /// For an observer: the state of every server that has one to send.
  virtual std::vector<std::string> states() = 0;
  /// For an observer: the versions in the checkpoints from which servers started, by the beginnings of their ranges.
  virtual std::map<std::int64_t, std::int64_t> resumed() const = 0;
};

/// How a worker joins.
struct JoinOptions {
  int worker = -1;         // the number to use; −1: any free one; ranks have their own
  Security security = {};  // gRPC
  PushCompression compression = {};
  std::string terms = {};
  Nanoseconds deadline = std::chrono::seconds(60);  // for one answer, in addition to the time that the server may wait for other workers
  Nanoseconds patience = std::chrono::seconds(60);  // gRPC: how long to wait for a server that is gone; then PeerError names its address
};

/// This server of the cluster, or a worker's access to all of them, through the cluster's ranks if it has any, else through gRPC.
std::unique_ptr<Service> serve(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                               ServiceOptions options);
std::unique_ptr<RemoteClient> join(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options);

}  // namespace paceline::ps

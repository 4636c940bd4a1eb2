// A server for workers of other processes, and a worker's access to it, over gRPC (grpc.h) or between the ranks of a communicator
// (ranks.h).
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
  /// The first server's order for a worker, which reads it when it asks for work; empty if there is none. Its answer comes next.
  std::function<std::string(int worker)> order = {};
  std::function<void(int worker, std::string_view answer)> answered = {};
  /// The other servers: carries out an order of the first one and returns the answer. The same order may come twice.
  std::function<std::string(std::string_view order)> carry_out = {};
  /// The version in the checkpoint that this server started from; −1: none.
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
  /// Within next(): carries out an order of the first server and returns the answer.
  virtual void on_order(std::function<std::string(std::string_view order)> carry_out) = 0;
  /// For an observer: gives orders[i] to the i-th server after the first, all at the same time, and returns their answers.
  virtual std::vector<std::string> order(std::span<const std::string> orders) = 0;
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

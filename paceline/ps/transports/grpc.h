// Parameter servers and workers as processes, on one host or many, over gRPC.
//
// A worker has one bidirectional stream to each server. What it says is in wire.h; parameters and gradients travel as bytes that gRPC takes
// from where they lie and that are copied once, on arrival, to where they belong. There are no messages of a protocol compiler.
//
// Life and death: a worker whose stream breaks has left at once. One that neither speaks nor beats for the host's silence limit is
// forgotten and its task handed back. A server that is gone is waited for; when it is there again, at the same address, the worker joins
// again and goes on. Whatever was under way then is lost, and never applied twice.
//
// Workers and servers that do not share a host use mutual TLS; without certificates only loopback addresses are served and called.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/ps/client.h"
#include "paceline/ps/layout.h"
#include "paceline/ps/transports/push_coder.h"
#include "paceline/ps/transports/task.h"

namespace paceline::ps {

/// PEM files of one side. All three: mutual TLS.
struct Security {
  std::string certificate = {}, key = {}, authority = {};
  bool allow_insecure = false;  // plain text to other hosts
};

/// As the recipe says.
inline Security security_of(const PsConfig& config) {
  return {.certificate = config.certificate, .key = config.key, .authority = config.authority, .allow_insecure = config.allow_insecure};
}

class GrpcServer {
 public:
  struct Options {
    std::string address = "127.0.0.1:0";  // port 0: a free one
    std::int64_t begin = 0, end = -1;     // the host's range of the arena; −1: to its end
    Security security = {};
    PushCompression compression = {};
    /// Work for a worker, of the first server alone: a task; or none, `finished` or not, where there will be no more, or none for now. May
    /// wait for a while, no longer than a second: the worker asks again. Called by many threads.
    std::function<std::optional<Task>(int worker, bool& finished)> next_task = {};
    std::function<void(int worker, const Task& task, double loss_sum, double right, std::int64_t targets)> task_done = {};
    /// The worker that had it is gone.
    std::function<void(int worker, const Task& task)> task_lost = {};
  };

  /// ConfigError: an address that cannot be served, or may not be without certificates.
  GrpcServer(std::shared_ptr<Host> host, const Layout& layout, const Options& options);
  ~GrpcServer();  // ends all streams; their workers have left
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  std::string address() const;       // with the port that was found
  std::vector<int> workers() const;  // that are here now

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A worker.
class GrpcClient : public Client {
 public:
  virtual int worker() const = 0;
  /// Work to do; waits for it. Nothing: there will be no more.
  virtual std::optional<Task> next() = 0;
  virtual void done(const Task& task, double loss_sum, double right, std::int64_t targets) = 0;
};

struct GrpcOptions {
  int worker = -1;  // the number to have; −1: one that is free
  Security security = {};
  PushCompression compression = {};
  Nanoseconds deadline = std::chrono::seconds(60);  // of one answer, beyond what the server may wait for other workers
  Nanoseconds patience = std::chrono::seconds(60);  // with a server that is gone; then PeerError names its address
};

/// Joins the servers, whose ranges must be those of the arena in the order of the addresses. ConfigError where a server has another model.
std::unique_ptr<GrpcClient> connect_grpc(const std::vector<std::string>& addresses, const Layout& layout, const GrpcOptions& options = {});

}  // namespace paceline::ps

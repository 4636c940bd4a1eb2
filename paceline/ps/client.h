// A worker's access to the servers over any transport. Each range of the arena is sent to the server that holds it, and an answer is
// complete when all servers have answered. The first server holds the batch norms' statistics and the predictors.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "paceline/ps/concurrent_server.h"

namespace paceline::ps {

/// The residual of compressed pushes to one server; refers to the client's memory.
struct Unsent {
  std::int64_t begin = 0;               // of the server's range in the arena
  std::span<float> residual, velocity;  // velocity: empty unless the compressor applies momentum
  std::int64_t* pushes = nullptr;       // how many were encoded
};

class Client {
 public:
  virtual ~Client() = default;
  /// Waits until all servers let the worker pull, and fills `into`, the whole arena; null if it needs no parameters.
  virtual void pull(float* into, float rate) = 0;
  virtual Advice report(const Report& report, const float* statistics) = 0;
  /// Pushes the gradient of the whole arena, and overwrites it. Returns the first server's admission.
  virtual Admission push(float* gradient, const Push& push) = 0;
  virtual bool cancelled() = 0;
  /// By server, for a checkpoint; empty if pushes are not compressed.
  virtual std::vector<Unsent> unsent() { return {}; }
};

/// A worker in the servers' process. Server i holds the elements [cuts[i], cuts[i+1]). It joins on construction, and leaves on destruction.
std::unique_ptr<Client> make_in_process_client(std::vector<std::shared_ptr<ConcurrentServer>> servers, std::vector<std::int64_t> cuts,
                                               int worker);

}  // namespace paceline::ps

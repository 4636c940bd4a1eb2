// A worker's way to the servers, whatever carries it: the arena's ranges go to the servers that have them, and an answer is complete when
// all have answered. The first server has the batch norms' statistics and the predictors.
#pragma once

#include <functional>
#include <span>

#include "paceline/ps/concurrent_server.h"

namespace paceline::ps {

class Client {
 public:
  virtual ~Client() = default;
  /// Waits until all servers let the worker pull, and fills `into`, the whole arena; null: it wants no parameters.
  virtual void pull(float* into, float rate) = 0;
  virtual Advice report(const Report& report, const float* statistics) = 0;
  /// The whole arena's gradient, which is used up. The admission is the first server's.
  virtual Admission push(float* gradient, const Push& push) = 0;
  virtual bool in_vain() = 0;
};

/// A worker in the servers' process. Server i holds the elements [cuts[i], cuts[i+1]). It joins now, and leaves when it is destroyed.
std::unique_ptr<Client> make_in_process_client(std::vector<std::shared_ptr<ConcurrentServer>> servers, std::vector<std::int64_t> cuts,
                                               int worker);

}  // namespace paceline::ps

// A server's memory as LibTorch's tensors: for a checkpoint and back, and for whoever looks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/observe/event.h"
#include "paceline/ps/server.h"
#include "paceline/step/state.h"

namespace paceline::central {

/// Names in a checkpoint, behind the server's prefix.
inline constexpr const char* kServerNumbers = "bookkeeping.numbers";
inline constexpr const char* kServerLedger = "bookkeeping.ledger";

/// Of a server that nothing happens to meanwhile.
class ServerTensors {
 public:
  ServerTensors(ps::Server& server, const c10::Device& device) : server_(server), device_(device) {}

  at::Tensor parameters() const { return tensor(server_.parameters(), server_.length()); }  // its range, in place
  at::Tensor statistics() const { return tensor(server_.statistics(), server_.statistics_length()); }

  /// All that it keeps beside the parameters, copied. Names begin with `prefix`.
  std::vector<step::NamedTensor> save(const std::string& prefix) const;
  /// What a checkpoint has of other workers is left alone. ConfigError where it does not fit; then nothing has changed.
  void load(std::span<const step::NamedTensor> state, const std::string& prefix) const;

 private:
  at::Tensor tensor(float* data, std::int64_t count) const;

  ps::Server& server_;
  c10::Device device_;
};

/// What a server has done so far.
observe::Served served_by(const ps::Server& server);

}  // namespace paceline::central

// A server's memory as LibTorch tensors: to save, to load, and to read.
#pragma once

#include <string>
#include <vector>

#include "paceline/central/saved_servers.h"
#include "paceline/observe/event.h"
#include "paceline/ps/server.h"
#include "paceline/step/state.h"

namespace paceline::central {

/// For a server that nobody uses at the same time.
class ServerTensors {
 public:
  ServerTensors(ps::Server& server, const c10::Device& device) : server_(server), device_(device) {}

  at::Tensor parameters() const { return tensor(server_.parameters(), server_.length()); }  // its range, in place
  at::Tensor shown() const { return tensor(server_.shown(), server_.length()); }            // the parameters to evaluate with
  at::Tensor statistics() const { return tensor(server_.statistics(), server_.statistics_length()); }

  /// Its whole state except the parameters, without a copy if possible. Names begin with `prefix`.
  std::vector<step::NamedTensor> views(const std::string& prefix) const;
  /// A copy of it, in host memory.
  std::vector<step::NamedTensor> save(const std::string& prefix) const;
  /// Ignores the checkpoint's tensors of workers. What they had in progress is left out if the server has another range than it had, and
  /// unless `progress`. ConfigError if it does not fit; then nothing has changed.
  void load(const SavedServer& saved, bool progress = true) const;
  /// The same for a run that starts from the checkpoint: its workers begin with a pull.
  void load_anew(const SavedServer& saved) const;

 private:
  at::Tensor tensor(float* data, std::int64_t count) const;
  at::Tensor saved_array(const SavedServer& saved, const ps::Server::Array& array) const;

  ps::Server& server_;
  c10::Device device_;
};

/// Counts of what a server has done so far.
observe::Served served_by(const ps::Server& server);

}  // namespace paceline::central

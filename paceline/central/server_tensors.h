// A server's memory as LibTorch tensors: to save, to load, and to read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/observe/event.h"
#include "paceline/ps/server.h"
#include "paceline/step/state.h"

namespace paceline::central {

/// Prefixes of the names of a server's and of a worker's tensors in a checkpoint of real workers (threads or processes).
std::string server_prefix(std::size_t server);
std::string worker_prefix(std::size_t worker);
/// A worker's tensors in the checkpoint, without the prefix; empty if it has none of that worker.
std::vector<step::NamedTensor> saved_worker(std::span<const step::NamedTensor> state, std::size_t worker);
/// The tensors of all workers in the checkpoint.
std::vector<step::NamedTensor> saved_workers(std::span<const step::NamedTensor> state);
/// ConfigError unless a checkpoint has exactly that many servers.
void check_servers(std::span<const step::NamedTensor> state, std::size_t servers);

/// Names in a checkpoint, after the server's prefix.
inline constexpr const char* kServerVersion = "version";
inline constexpr const char* kServerNumbers = "bookkeeping.numbers";
inline constexpr const char* kServerLedger = "bookkeeping.ledger";

/// For a server that nobody uses at the same time.
class ServerTensors {
 public:
  ServerTensors(ps::Server& server, const c10::Device& device) : server_(server), device_(device) {}

  at::Tensor parameters() const { return tensor(server_.parameters(), server_.length()); }  // its range, in place
  at::Tensor shown() const { return tensor(server_.shown(), server_.length()); }            // the parameters to evaluate with
  at::Tensor statistics() const { return tensor(server_.statistics(), server_.statistics_length()); }

  /// Its whole state except the parameters, without a copy if possible. Names begin with `prefix`.
  std::vector<step::NamedTensor> views(const std::string& prefix) const;
  /// A copy of it.
  std::vector<step::NamedTensor> save(const std::string& prefix) const;
  /// Ignores the checkpoint's tensors of workers. ConfigError if it does not fit; then nothing has changed.
  void load(std::span<const step::NamedTensor> state, const std::string& prefix) const;
  /// The same for a run that starts from the checkpoint: its workers begin with a pull.
  void load_anew(std::span<const step::NamedTensor> state, const std::string& prefix) const;

 private:
  at::Tensor tensor(float* data, std::int64_t count) const;

  ps::Server& server_;
  c10::Device device_;
};

/// Counts of what a server has done so far.
observe::Served served_by(const ps::Server& server);

}  // namespace paceline::central

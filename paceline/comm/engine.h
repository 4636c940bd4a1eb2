// Engines: what carries messages between ranks. All that were compiled in coexist; one is chosen when a run starts, by what it can do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "paceline/base/registry.h"
#include "paceline/comm/connect.h"
#include "paceline/comm/endpoint.h"

namespace paceline::comm {

std::string paceline_run(int ranks);

struct Engine {
  /// This process's communicator in a world of processes. Null for engines whose ranks are threads.
  std::unique_ptr<Communicator> (*connect)(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store) = nullptr;
  /// The store through which its ranks find each other and later report what they do; may be null for an engine that needs none.
  std::shared_ptr<Store> (*meet)(const World& world, Nanoseconds deadline) = connect_store;
  /// The command that starts `ranks` processes; it goes in front of the program.
  std::string (*launcher)(int ranks) = paceline_run;
  bool spans_hosts = false;
  bool shares_memory = true;  // ranks of a host reduce in one another's memory
  /// How GPU memory is sent. `none`: not supported. Directly: each rank has a GPU of its own, numbered by its rank on the host. By address,
  /// between ranks that are threads. Or through windows that processes open to each other.
  enum class Gpu : std::uint8_t { none, own, addresses, windows };
  Gpu gpu = Gpu::none;
};

/// The engines of this build.
std::span<const Entry<Engine>> engines();
bool has_engine(std::string_view key);
/// What a recipe may name: the engines of this build, then those that it lacks. engine_of() explains how to get one of the latter.
std::vector<std::string_view> engine_keys();
/// The engine with this name. Throws ConfigError; if this build lacks the engine, the error says what is missing and what to use instead.
const Engine& engine_of(std::string_view key);

}  // namespace paceline::comm

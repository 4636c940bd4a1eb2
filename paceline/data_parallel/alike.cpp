#include "paceline/data_parallel/alike.h"

#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/nn/graph_module.h"

namespace paceline::data_parallel {
namespace {

/// A GraphModule computes with its own arena's memory, even if its parameters are pointed elsewhere.
void refuse_graphs(torch::nn::Module& module, const std::string& who) {
  const auto is_graph = [](const torch::nn::Module& part) { return dynamic_cast<const nn::GraphModule*>(&part) != nullptr; };
  if (is_graph(module) || std::ranges::any_of(module.modules(/*include_self=*/false), [&](const auto& part) { return is_graph(*part); }))
    throw ConfigError(
        fmt::format("{} takes a torch::nn::Module of your own, not a GraphModule, whose parameters are already in an arena; train its "
                    "network with a recipe and strategy.name",
                    who));
}

}  // namespace

// If the modules differed, values would end up in the wrong tensors.
torch::nn::Module& check_alike(torch::nn::Module& module, comm::Communicator& comm, const std::string& who) {
  refuse_graphs(module, who);
  if (comm.size() == 1) return module;
  std::string text;
  const auto describe = [&](const std::string& name, const torch::Tensor& tensor) {
    text += fmt::format("{} {} {} {}\n", name, fmt::join(tensor.sizes(), "x"), c10::toString(tensor.scalar_type()), tensor.requires_grad());
  };
  for (const auto& item : module.named_parameters()) describe(item.key(), item.value());
  for (const auto& item : module.named_buffers()) describe(item.key(), item.value());
  std::vector<double> checksums(static_cast<std::size_t>(comm.size()));
  checksums[static_cast<std::size_t>(comm.rank())] = crc32c(std::as_bytes(std::span(text)));
  comm.run(comm::allreduce(checksums));
  const auto other = std::ranges::find_if(checksums, [&](double checksum) { return checksum != checksums.front(); });
  if (other != checksums.end())
    throw ConfigError(
        fmt::format("{}: worker {}'s module has other parameters or buffers than worker 0's (names, shapes, types, or which are frozen); "
                    "build the same module on all workers",
                    who, other - checksums.begin()));
  return module;
}

bool share_process(comm::Communicator& comm) {
  static const char own = 0;  // processes in different containers may have equal numbers, but hardly equal addresses
  std::vector<std::int64_t> ids(2 * static_cast<std::size_t>(comm.size()));
  ids[2 * static_cast<std::size_t>(comm.rank())] = getpid();
  ids[2 * static_cast<std::size_t>(comm.rank()) + 1] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&own));
  comm.run(comm::all_gather(ids));
  std::set<std::pair<std::int64_t, std::int64_t>> processes;
  for (std::size_t i = 0; i < ids.size(); i += 2) processes.emplace(ids[i], ids[i + 1]);
  return std::ssize(processes) < comm.size();
}

void broadcast_bytes(const torch::Tensor& tensor, comm::Communicator& comm) {
  if (comm.size() == 1 || tensor.numel() == 0) return;
  const torch::Tensor flat = tensor.detach().contiguous().view(-1), bytes = flat.view(torch::kByte);
  comm.run(comm::broadcast(bytes));
  tensor.copy_(flat.view(tensor.sizes()));
}

void broadcast_module(torch::nn::Module& module, const tensor::Arena& arena, comm::Communicator& comm) {
  const torch::NoGradGuard no_grad;
  broadcast_bytes(arena.parameters(), comm);
  for (const torch::Tensor& parameter : module.parameters())
    if (!parameter.requires_grad()) broadcast_bytes(parameter, comm);
  for (const torch::Tensor& buffer : module.buffers()) broadcast_bytes(buffer, comm);
}

}  // namespace paceline::data_parallel

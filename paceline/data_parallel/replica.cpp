#include "paceline/data_parallel/replica.h"

#include <torch/types.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/alike.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/meeting.h"

namespace paceline {
namespace {

/// Rejects options that a recipe would reject.
template <class Options>
Options checked_options(const char* section, Options options) {
  Config config;
  config.bind(section, "", options);
  config.check();
  return options;
}

torch::nn::Module& on_host(torch::nn::Module& module, const char* who, const char* why) {
  for (const torch::Tensor& parameter : module.parameters())
    if (!parameter.is_cpu()) throw ConfigError(fmt::format("{}: {}; keep the module on the CPU, or use LocalSgd", who, why));
  return module;
}

}  // namespace

struct Replica::State {
  State(torch::nn::Module& adopted, comm::Communicator& workers, const std::string& who, std::uint64_t seed, const MakeMeeting& make)
      : module(adopted),
        own(workers.size() > 1 ? workers.split(0, workers.rank()) : nullptr),
        comm(own ? *own : workers),
        arena(tensor::adopt(data_parallel::check_alike(adopted, comm, who), data_parallel::allocate_from(comm))) {
    data_parallel::broadcast_module(module, arena, comm);
    meeting = make({.arena = arena, .comm = comm, .seed = seed});
  }

  /// Replaces buffers by what the workers agree on: the mean of statistics, and worker 0's value of whatever cannot be averaged.
  void agree_on_buffers() {
    for (const torch::Tensor& buffer : module.buffers()) {
      if (!buffer.defined() || buffer.numel() == 0) continue;
      if (!buffer.is_floating_point()) {
        data_parallel::broadcast_bytes(buffer, comm);
        continue;
      }
      const torch::Tensor flat = buffer.contiguous().view(-1);
      comm.run(comm::allreduce(flat, {.op = comm::ReduceOp::mean}));
      buffer.copy_(flat.view(buffer.sizes()));
    }
  }

  torch::nn::Module& module;
  std::unique_ptr<comm::Communicator> own;  // for this module alone: several may meet at the same time
  comm::Communicator& comm;
  tensor::Arena arena;
  std::unique_ptr<data_parallel::Meeting> meeting;
  std::int64_t steps = 0, bytes = 0;
  double epoch = 0;
  torch::Tensor own_parameters;            // while the module has the agreed values …
  std::vector<torch::Tensor> own_buffers;  // … its own are kept here
};

Replica::Replica(torch::nn::Module& module, comm::Communicator& comm, const std::string& who, std::uint64_t seed, const MakeMeeting& make)
    : state_(std::make_unique<State>(module, comm, who, seed, make)) {}

Replica::~Replica() = default;

tensor::Arena& Replica::arena() { return state_->arena; }
std::int64_t Replica::bytes_sent() const { return state_->bytes; }
void Replica::set_epoch(double epoch) { state_->epoch = epoch; }

void Replica::step() {
  if (state_->own_parameters.defined())
    throw ConfigError("a step would be lost while the module holds the agreed parameters; end the scope of Replica::Agreed first");
  const torch::NoGradGuard no_grad;
  state_->arena.take_back();
  ++state_->steps;
  state_->bytes += state_->meeting->meet({.step = state_->steps, .epoch = state_->epoch});
}

Replica::Agreed::Agreed(Replica& replica) : replica_(replica) {
  State& state = *replica_.state_;
  if (state.own_parameters.defined())
    throw ConfigError("the module already holds the agreed parameters; use one Replica::Agreed at a time");
  const torch::NoGradGuard no_grad;
  state.arena.take_back();
  state.own_parameters = state.arena.parameters().clone();
  state.own_buffers.clear();
  for (const torch::Tensor& buffer : state.module.buffers()) state.own_buffers.push_back(buffer.defined() ? buffer.clone() : buffer);
  state.meeting->agree();
  state.agree_on_buffers();
}

Replica::Agreed::~Agreed() {
  State& state = *replica_.state_;
  const torch::NoGradGuard no_grad;
  torch::Tensor(state.arena.parameters()).copy_(state.own_parameters);
  const std::vector<torch::Tensor> buffers = state.module.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].defined()) buffers[i].copy_(state.own_buffers[i]);
  state.own_parameters.reset();
}

LocalSgd::LocalSgd(torch::nn::Module& module, comm::Communicator& comm, Options options)
    : Replica(module, comm, "LocalSgd", 0, [options = checked_options("local_sgd", options)](const data_parallel::MeetingSetup& setup) {
        return data_parallel::make_local_sgd_meeting(setup, options);
      }) {}

ElasticAveraging::ElasticAveraging(torch::nn::Module& module, comm::Communicator& comm, Options options)
    : Replica(module, comm, "ElasticAveraging", 0,
              [options = checked_options("elastic_averaging", options)](const data_parallel::MeetingSetup& setup) {
                return data_parallel::make_elastic_meeting(setup, options);
              }) {}

DiLoCo::DiLoCo(torch::nn::Module& module, comm::Communicator& comm, Options options)
    : Replica(module, comm, "DiLoCo", 0, [options = checked_options("diloco", options)](const data_parallel::MeetingSetup& setup) {
        return data_parallel::make_diloco_meeting(setup, options);
      }) {}

Gossip::Gossip(torch::nn::Module& module, comm::Communicator& comm, std::uint64_t seed)
    : Replica(on_host(module, "Gossip", data_parallel::kGossipNeedsHost), comm, "Gossip", seed, data_parallel::make_gossip_meeting) {}

}  // namespace paceline

#include "paceline/data_parallel/data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <optional>

#include <fmt/format.h>

#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/data_parallel/alike.h"
#include "paceline/data_parallel/buckets.h"
#include "paceline/data_parallel/exchange.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/nn/synchronised_norms.h"
#include "paceline/schedule/schedule.h"
#include "paceline/step/momentum.h"

namespace paceline {

using data_parallel::Bucket;

namespace {

/// Rejects what a recipe would reject.
DataParallel::Options checked(DataParallel::Options options) {
  Config config;
  config.bind("compress", "", options.compress);
  config.check();
  if (options.algorithm == "auto") options.algorithm.clear();
  if (!options.algorithm.empty()) schedule::algorithm_for(options.algorithm, schedule::Collective::allreduce);
  if (options.momentum != 0 && !step::corrects_momentum(options.compression))
    throw ConfigError(
        fmt::format("DataParallel: momentum {} is for compression 'dgc', which applies it before it compresses; with '{}' "
                    "give it to the optimizer",
                    options.momentum, options.compression));
  return options;
}

}  // namespace

struct DataParallel::State {
  State(torch::nn::Module& adopted, comm::Communicator& workers, const Options& options)
      : module(adopted),
        own(workers.size() > 1 ? workers.split(0, workers.rank()) : nullptr),
        comm(own ? *own : workers),
        exchanges(comm.size() > 1 || step::corrects_momentum(options.compression)),
        arena(tensor::adopt(data_parallel::check_alike(adopted, comm, "DataParallel"), data_parallel::allocate_from(comm),
                            [this](std::size_t index) {
                              if (exchanges) gradient_done(index);
                            })),
        exchange(data_parallel::make_exchange({.arena = arena,
                                               .comm = comm,
                                               .compression = options.compression,
                                               .compress = options.compress,
                                               .momentum = options.momentum,
                                               .seed = options.seed,
                                               .algorithm = options.algorithm})),
        lane(arena, comm, clock, [this](const Bucket& bucket) {
          exchange->average(bucket);
          return Nanoseconds(0);
        }) {
    // On a GPU, the lane's thread would not know the stream of the pass.
    lane.configure(static_cast<std::int64_t>(options.bucket_mb * (1 << 20)), options.overlap && arena.gradients().is_cpu());
    exchange->prepare(lane.buckets());
    const auto named = adopted.named_parameters();
    for (const tensor::Entry& entry : arena.entries()) parameters.push_back(named[entry.name]);
    if (options.synchronise_norms && comm.size() > 1) synchronise_norms();
  }

  /// Norms get a communicator of their own, because they communicate in the middle of a pass, while gradients are in flight.
  void synchronise_norms() {
    if (arena.gradients().is_cuda() && data_parallel::share_process(comm))
      throw ConfigError(
          "DataParallel: workers that are threads of one process cannot synchronise norms on a GPU, because autograd has one thread for "
          "all of them; start every worker as its own process with `paceline run`, or leave synchronise_norms off");
    const std::shared_ptr<comm::Communicator> meeting = comm.split(0, comm.rank());
    norms.emplace(module, [meeting](at::Tensor& sums) {  // a graph may outlive this object
      meeting->run(comm::allreduce(sums));
    });
  }
  bool norms_meet() const { return norms && norms->count() > 0 && module.is_training(); }

  /// A gradient was added to parameter `index`, in the arena.
  void gradient_done(std::size_t index) {
    refuse_after_failure();
    if (accumulating) return;
    if (!in_pass) {
      in_pass = true;
      begin_exchange();
      const auto alive = std::make_shared<char>();
      pass = alive;
      torch::autograd::Engine::get_default_engine().queue_callback([this, alive] { finish(); });
    }
    lane.ready(index, index + 1);
  }

  /// If a pass throws, autograd drops its callbacks: finish() was not called, and calling it later is no remedy. Some buckets have been
  /// sent, and the other workers may have continued with what they received.
  void refuse_after_failure() const {
    if (in_pass && pass.expired())
      throw Error(
          "DataParallel: the previous backward pass threw an error after some of its gradients had been sent to the other workers; restart "
          "all workers from their last checkpoint");
  }

  void begin_exchange() {
    exchange->begin_step({.step = passes + 1, .epoch = epoch});
    exchange_begun = true;
  }

  /// The end of a backward pass.
  void finish() {
    in_pass = false;
    if (!exchange_begun) begin_exchange();
    exchange_begun = false;
    tensor::restore_gradients(arena, parameters);  // for parameters that the pass did not use: zeros, or what was accumulated before
    ++passes;
    lane.finish();
  }

  torch::nn::Module& module;
  std::unique_ptr<comm::Communicator>
      own;  // only for this module: its buckets are in flight at the same time as other modules' and as the user's own messages
  comm::Communicator& comm;
  bool exchanges;  // false with a single worker
  tensor::Arena arena;
  SteadyClock clock;
  std::vector<torch::Tensor> parameters;  // by entry of the arena
  std::int64_t passes = 0;                // in which the other workers took part
  double epoch = 0;
  bool in_pass = false, exchange_begun = false, accumulating = false;
  std::optional<nn::SynchronisedNorms> norms;
  std::weak_ptr<char> pass;  // held by autograd while it is inside a pass
  std::unique_ptr<data_parallel::Exchange> exchange;
  data_parallel::BucketLane lane;  // last: its thread uses everything above
};

DataParallel::DataParallel(torch::nn::Module& module, comm::Communicator& comm, const Options& options)
    : state_(std::make_unique<State>(module, comm, checked(options))) {
  data_parallel::broadcast_module(module, state_->arena, state_->comm);
}

DataParallel::~DataParallel() = default;

DataParallel::Accumulate::Accumulate(DataParallel& parallel) : parallel_(parallel) { parallel_.state_->accumulating = true; }
DataParallel::Accumulate::~Accumulate() { parallel_.state_->accumulating = false; }

tensor::Arena& DataParallel::arena() { return state_->arena; }
void DataParallel::set_epoch(double epoch) { state_->epoch = epoch; }
std::int64_t DataParallel::bytes_sent() const { return state_->exchange->bytes_sent(); }

void DataParallel::backward(const torch::Tensor& loss) {
  state_->refuse_after_failure();
  if (!loss.defined() && state_->norms_meet())
    throw ConfigError(
        "DataParallel: a worker without a loss would leave the others waiting in their synchronised norms; if it has no samples left, pass "
        "an empty batch through the module and give its loss");
  state_->arena.take_back();
  const std::int64_t before = state_->passes;
  if (loss.defined() && loss.requires_grad()) loss.backward();
  if (state_->passes == before && !state_->accumulating && state_->exchanges) state_->finish();
}

double DataParallel::weight(std::int64_t samples) {
  if (samples < 0) throw ConfigError(fmt::format("DataParallel: a share cannot have {} samples; give at least 0", samples));
  const double all = sum(static_cast<double>(samples));
  return all > 0 ? static_cast<double>(samples) * state_->comm.size() / all : 0;
}

void DataParallel::backward(const torch::Tensor& loss, std::int64_t samples) {
  const double factor = weight(samples);
  backward(loss.defined() ? loss * factor : loss);
}

void DataParallel::synchronise_buffers() {
  state_->refuse_after_failure();
  torch::NoGradGuard no_grad;
  for (const torch::Tensor& buffer : state_->module.buffers()) data_parallel::broadcast_bytes(buffer, state_->comm);
}

double DataParallel::sum(double value) {
  state_->refuse_after_failure();
  std::vector<double> all = {value};
  state_->comm.run(comm::allreduce(all));
  return all[0];
}

}  // namespace paceline

// Data parallelism for a user's own training loop: any torch::nn::Module, any torch::optim, no Paceline trainer.
//
//   auto comm = paceline::comm::connect();                              // finds its rank and the others by itself
//   paceline::DataParallel parallel(*model, *comm);                     // before the optimizer is made
//   … torch::data::make_data_loader(set, paceline::ShardedSampler(size, *comm), batch) …
//
// From then on, loss.backward() leaves the mean of all workers' gradients in the parameters' .grad: buckets are sent while autograd
// continues, and backward() returns when all have been reduced. The loop needs no other change. After a pass that throws, all later calls
// throw too, because the gradients that it had already sent cannot be recalled.
//
// A compressor sends fewer bytes and adds what it did not send to the next pass (error feedback). This residual is not part of the module,
// so a loop that resumes from a saved module starts without it.
//
// The parameters move into an arena whose memory the workers share. All parameters start with worker 0's values. Frozen parameters stay in
// place and are never sent again, so unfreeze a parameter before wrapping the module. Parameters that a pass does not use have zero
// gradients. torch::load() into a wrapped module takes effect at the next pass, and must load the same values on every worker. Batch norms
// see their own worker's samples; evaluate with worker 0's running statistics (synchronise_buffers()). With `synchronise_norms`
// BatchNorm1d, 2d and 3d anywhere in the module see all workers' samples (nn/synchronised_norms.h): then all workers must make the same
// training passes; a worker without samples passes an empty batch.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/compress/compressor.h"
#include "paceline/data_parallel/sharded_sampler.h"

namespace paceline {

namespace tensor {
class Arena;
}

class DataParallel {
 public:
  struct Options {
    double bucket_mb = 8;              // gradients that are sent together
    bool overlap = true;               // send them while the backward pass continues
    std::string compression = "none";  // how they shrink on their way: a key of `paceline list compressors`; "none" or empty: not at all
    compress::CompressConfig compress = {};  // its settings, [compress] of a recipe
    double momentum = 0;                     // dgc: SGD's momentum, which the compressor applies before compressing; give the optimizer 0
    std::uint64_t seed = 0;                  // for compressors with stochastic rounding
    std::string algorithm = {};              // of the allreduces; empty: the communicator's own choice
    bool synchronise_norms = false;          // batch norms see the samples of all workers, in training mode
  };

  /// Collective. The module and the communicator outlive it. Several modules may share a communicator if they are wrapped in the same order
  /// on all workers; each gets a group of its own, so one backward pass may go through all of them.
  DataParallel(torch::nn::Module& module, comm::Communicator& comm, const Options& options);
  DataParallel(torch::nn::Module& module, comm::Communicator& comm) : DataParallel(module, comm, Options()) {}
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// While it exists, backward passes accumulate gradients without sending them; the first pass afterwards sends the sum.
  class Accumulate {
   public:
    explicit Accumulate(DataParallel& parallel);
    ~Accumulate();
    Accumulate(const Accumulate&) = delete;
    Accumulate& operator=(const Accumulate&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// loss.backward() for a loss that may reach no parameter, or that this worker does not have (no samples left): then the worker joins the
  /// others' pass with zeros, or with its accumulated gradients. After a plain backward() that reaches no parameter, the others would wait
  /// forever.
  void backward(const torch::Tensor& loss = {});
  /// The same for a loss that is the mean over `samples` samples, if workers have different numbers of them (the last batch of an epoch):
  /// the gradients become those of the mean over all workers' samples. Collective; a worker without samples passes an empty loss and 0.
  void backward(const torch::Tensor& loss, std::int64_t samples);
  /// The factor for this worker's mean loss that has this effect, for a loop that calls loss.backward() itself. Collective.
  double weight(std::int64_t samples);

  /// The memory of the module's parameters and gradients. A step::Updater on it can replace torch::optim.
  tensor::Arena& arena();

  /// Sets the epochs done, with fractions: dgc sends more in the first ones (compress.warmup_epochs).
  void set_epoch(double epoch);
  /// How many bytes of gradients this worker has sent.
  std::int64_t bytes_sent() const;

  /// Copies worker 0's buffers (running statistics) to all workers. Collective; call it before evaluating or saving.
  void synchronise_buffers();
  /// Sums a number over all workers: losses, right answers.
  double sum(double value);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline

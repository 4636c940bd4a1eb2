// Data parallelism for a user's own training loop: any torch::nn::Module, any torch::optim, no Paceline trainer.
//
//   auto comm = paceline::comm::connect();                              // finds its rank and the others by itself
//   paceline::DataParallel parallel(*model, *comm);                     // before the optimizer is made
//   … torch::data::make_data_loader(set, paceline::ShardedSampler(size, *comm), batch) …
//
// From then on, loss.backward() leaves the mean of all workers' gradients in the parameters' .grad: buckets leave while autograd continues,
// and backward() returns when all have arrived. The loop stays as it is. A pass that throws is the last one: what has left of it cannot be
// taken back, so whatever comes after it throws too.
//
// A compressor sends fewer bytes and keeps what it did not send for the next pass (error feedback). That residual is not part of the
// module: a loop that starts again from a saved module begins without it.
//
// The parameters move into an arena whose memory the workers share. They begin with worker 0's values, and so do frozen ones, which stay
// where they are and are never sent again: thaw a parameter before the module is wrapped. Parameters that a pass does not use count as
// zeros. torch::load() into a wrapped module counts from the next pass on, and must load the same on every worker. Batch norms see their
// own worker's samples, and worker 0's running statistics are the ones to evaluate (synchronise_buffers()). With `synchronise_norms`
// BatchNorm1d, 2d and 3d anywhere in the module see all workers' samples (nn/synchronised_norms.h): then every worker makes every pass, one
// without samples with an empty batch, and no worker makes one alone in training mode.
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
    double bucket_mb = 8;              // gradients that travel together
    bool overlap = true;               // send them while the backward pass continues
    std::string compression = "none";  // how they shrink on their way: a key of `paceline list compressors`; "none" or empty: not at all
    compress::CompressConfig compress = {};  // its settings, [compress] of a recipe
    double momentum = 0;                     // dgc: that of SGD, which it applies before it compresses; give the optimizer 0
    std::uint64_t seed = 0;                  // of the compressors that round by chance
    std::string algorithm = {};              // of the allreduces; empty: the communicator's own choice
    bool synchronise_norms = false;          // batch norms see the samples of all workers, in training mode
  };

  /// Collective. The module and the communicator outlive it. Several modules may share a communicator, wrapped in the same order on all
  /// workers: each splits a group of its own from it, so that one backward pass may go through them all.
  DataParallel(torch::nn::Module& module, comm::Communicator& comm, const Options& options);
  DataParallel(torch::nn::Module& module, comm::Communicator& comm) : DataParallel(module, comm, Options()) {}
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// While it lives, backward passes add up their gradients without sending them; the first pass after it sends the sum.
  class Accumulate {
   public:
    explicit Accumulate(DataParallel& parallel);
    ~Accumulate();
    Accumulate(const Accumulate&) = delete;
    Accumulate& operator=(const Accumulate&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// loss.backward() for a loss that may reach no parameter, or that this worker does not have at all (no samples left): then it joins the
  /// others' pass with zeros, or with what it has accumulated. After a plain backward() that reached nothing they would wait for it.
  void backward(const torch::Tensor& loss = {});
  /// The same for a loss that is the mean over `samples` samples, where workers have different numbers of them (the last batch of an
  /// epoch): the gradients become those of the mean over all workers' samples. Collective; a worker without samples gives no loss and 0.
  void backward(const torch::Tensor& loss, std::int64_t samples);
  /// What this worker's mean loss is multiplied by for that, in a loop that calls loss.backward() itself. Collective.
  double weight(std::int64_t samples);

  /// The memory of the module's parameters and gradients. A step::Updater on it can replace torch::optim.
  tensor::Arena& arena();

  /// Epochs done, with fractions: dgc sends more in the first ones (compress.warmup_epochs).
  void set_epoch(double epoch);
  /// What this worker has sent of its gradients, in bytes.
  std::int64_t bytes_sent() const;

  /// All workers take worker 0's buffers (running statistics). Collective; before an evaluation or a save.
  void synchronise_buffers();
  /// The sum over all workers of a number that each has: losses, right answers.
  double sum(double value);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline

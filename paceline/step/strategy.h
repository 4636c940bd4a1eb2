// A strategy owns the training step: what is computed where, what is sent when, and which range of the arena is updated with what.
//
// The Trainer knows only this interface and contains no strategy's name. The strategies are in strategies/, one file each, and in central/.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/comm/mesh.h"
#include "paceline/compress/compressor.h"
#include "paceline/nn/loss.h"
#include "paceline/nn/model.h"
#include "paceline/observe/event.h"
#include "paceline/optim/optimizer.h"
#include "paceline/step/holders.h"
#include "paceline/step/state.h"

namespace paceline::step {

/// Called with a batch whose loss is not finite, and its step, while the module is still as it was in the forward pass.
using NotFinite = std::function<void(nn::Model&, const at::Tensor& inputs, std::int64_t step)>;

/// How the ranks of the mesh's pipeline axis divide a model (pipeline/).
struct PipelineSettings {
  std::string schedule = "1f1b";
  std::int64_t chunks = 0;             // of the model on each rank; 0: the schedule's default
  std::vector<nn::Units> stages = {};  // by virtual stage (graph/stages.h); empty: the mesh has one stage
};

/// What strategies share; what one alone needs is among its own settings. All that it refers to must outlive the strategy.
struct Context {
  nn::Model& model;
  const optim::OptimConfig& optim;
  const comm::Mesh& mesh;
  observe::Bus& bus;
  const Clock& clock;
  const compress::CompressConfig& compress;
  std::string compression = "none";
  std::uint64_t seed = 0;
  std::shared_ptr<const nn::Loss> loss = std::make_shared<nn::SoftmaxLoss>();
  std::int64_t micro_batches = 1;  // a batch is computed in this many parts, whose gradients are added
  bool offload = false;            // the optimizer's state is in host memory, and the host updates
  bool record_steps = true;        // CUDA: record the step in a graph
  bool repeatable = true;          // choose nothing by measurement that would change the bits
  NotFinite on_not_finite = {};    // on the CPU; a GPU would have to wait. Workers that are threads each call it
  PipelineSettings pipeline = {};

  /// The data-parallel workers: those with other samples and the same part of the model.
  comm::Communicator& comm() const { return mesh.data(); }
  int rank() const { return comm().rank(); }
  int workers() const { return comm().size(); }
};

/// A worker's share of a global batch, on the module's device. A ragged batch may leave some workers with no sample at all.
struct Batch {
  at::Tensor inputs, targets;
  std::int64_t global_samples = 0;  // of all shares together

  /// The factor of the gradient of a sum over this share, such that the mean over `workers` of these gradients is the gradient of the mean
  /// over all samples, however they are divided.
  double weight(int workers) const;
  /// Copies the samples of `other` into memory that stays at the same address as long as their shape does, as a recorded pass needs.
  void copy_from(const Batch& other);
};

/// Where the run stands, and what the schedule says there.
struct Point {
  std::int64_t step = 1;  // of the whole run, from 1
  double rate = 0;
  double epoch = 0;              // completed epochs, with the share of the current one
  std::int64_t epoch_index = 0;  // from 0
  std::int64_t batch_index = 0;  // in the epoch, from 0
};

struct StepResult {
  at::Tensor sums;           // [2] double on the device: this worker's sum of losses and right answers; valid until the next step
  std::int64_t targets = 0;  // how many they are sums over
};

/// What a worker has spent on communication since the run began.
struct Traffic {
  double exposed_s = 0;          // the training thread waited
  double communication_s = 0;    // an exchange was in progress, hidden or not
  std::int64_t bytes_sent = 0;   // payload
  std::int64_t bytes_plain = 0;  // what it would have been uncompressed
  // Of bytes_sent, what went along these axes of the mesh; the rest went along the data axis.
  std::int64_t bytes_pipeline = 0, bytes_tensor = 0;

  Traffic& operator+=(const Traffic& other);
};

/// The capabilities of a strategy that runs all workers itself, with a parameter server: a step is one worker's minibatch, and training
/// continues without a gradient that is not finite. The Trainer asks for it.
class Centralised {
 public:
  virtual ~Centralised() = default;
  virtual int workers() const = 0;  // the number of minibatches of a global batch
  /// Whether step() uses the batch's samples; if workers read the data themselves, it only uses their number.
  virtual bool reads_batches() const = 0;
  /// Waits for what earlier steps began and have not reported; returns the sums.
  virtual StepResult finish() = 0;
  /// Views of the model, which differ in the statistics of its batch norms. The first is the one that counts.
  virtual std::vector<std::string> views() const = 0;
  /// Like agree(), which selects the first view.
  virtual void show(const std::string& view) = 0;
  /// Whether a checkpoint is due, in addition to those that the recipe asks for.
  virtual bool wants_checkpoint() const = 0;
  /// The other processes that hold part of the state; null if this one holds all of it.
  virtual Holders* holders() { return nullptr; }
  /// The last checkpoint is complete on disk. `read` opens it and returns its tensors.
  virtual void checkpoint_complete(const std::function<std::vector<NamedTensor>()>& read) { static_cast<void>(read); }
  virtual observe::Served served() const = 0;
};

/// A factory returns it finished: it can make a step. In a resumed run it begins with the saved state, and the module has been loaded
/// before.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual StepResult step(const Batch& batch, const Point& point) = 0;

  /// The module becomes what the workers agree on (the mean of their replicas, of their statistics), for an evaluation or a checkpoint;
  /// resume_training() restores the worker's own. Collective.
  virtual void agree() {}
  virtual void resume_training() {}

  /// Everything beyond the agreed module that the next step depends on: what all workers replicate, and the rows that only this worker has.
  /// Between agree() and resume_training(), and valid until the latter. Collective. load() is for the factory: it gets what all workers
  /// saved and reads what it needs. ConfigError if that does not fit; part of it may then be loaded, and no step must be made.
  virtual std::vector<NamedTensor> save() = 0;
  virtual void load(std::span<const NamedTensor> state) = 0;

  /// After an error, which the strategy may outlive: cancels what is in flight, so that destroying it waits for nobody.
  virtual void abandon() {}

  virtual Traffic traffic() const { return {}; }
  /// Steps that were skipped because gradients in fp16 overflowed.
  virtual std::int64_t skipped_steps() const { return 0; }
  /// Null if every worker has its own trainer.
  virtual Centralised* centralised() { return nullptr; }
};

}  // namespace paceline::step

// Strategies with a parameter server: named pairs of an update rule and a consistency (ps/), carried out by one of three executors.
//
// To the Trainer such a strategy is one: it plays all workers by itself. A step is one worker's minibatch, handed to whoever may compute
// next, so that an epoch is every sample once, however fast each worker is.
#pragma once

#include "paceline/ps/host.h"
#include "paceline/ps/layout.h"
#include "paceline/ps/transports/service.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"

namespace paceline::central {

/// Everything that such a strategy needs, before anything is made. ConfigError where it cannot be.
void validate_central(const std::string& strategy, const ps::PsConfig& ps, const ps::TimingConfig& timing, const optim::OptimConfig& optim,
                      const std::string& compression, int workers);

/// The strategy of that name, which has a parameter server.
std::unique_ptr<step::Strategy> make_central(const std::string& strategy);

/// Whether the strategy has a parameter server, and plays all workers of a run by itself.
bool is_centralised(const std::string& strategy);
/// Whether updates are made with gradients that are older than the server's parameters.
bool is_asynchronous(const std::string& strategy, const ps::PsConfig& ps);

/// What computes: workers, in whatever order and place. Server and workers share `context`, which outlives the executor.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual step::StepResult step(const step::Batch& batch, const step::Point& point) = 0;
  virtual step::StepResult finish() { return {}; }
  /// The module gets the server's parameters and the statistics of `view`; nothing is under way afterwards that could change them.
  virtual void show(const std::string& view) = 0;
  virtual void resume_training() = 0;
  virtual std::vector<step::NamedTensor> save() = 0;
  virtual void load(std::span<const step::NamedTensor> state) = 0;
  virtual observe::Served served() const = 0;
  virtual bool wants_checkpoint() const { return false; }
};

/// The sums of minibatches that workers finished at their own pace, until they are taken. One whose loss is not a number is left out of the
/// others' sums, as it is out of the server's parameters.
class Finished {
 public:
  void add(double loss, double right, std::int64_t targets);
  /// What was added since it was last called; not a number where nothing else was.
  step::StepResult take();

 private:
  double loss_ = 0, right_ = 0;
  std::int64_t targets_ = 0, refused_ = 0;
};

/// `ps` with the strategy's rule and consistency filled in.
std::unique_ptr<Executor> make_virtual_executor(const step::Context& context, const ps::PsConfig& ps);
std::unique_ptr<Executor> make_threads_executor(const step::Context& context, const ps::PsConfig& ps);
std::unique_ptr<Executor> make_processes_executor(const step::Context& context, const ps::PsConfig& ps);

/// The ranges of `servers` servers, and the server of one of them, with the module's parameters in it.
std::vector<std::int64_t> cuts_of(const step::Context& context, std::int64_t servers);
std::shared_ptr<ps::Host> make_host(const step::Context& context, const ps::PsConfig& ps, std::span<const std::int64_t> cuts,
                                    std::size_t index);
/// What workers and servers must agree on.
ps::Layout layout_of(const step::Context& context);
/// How its pushes are compressed, where they travel.
ps::PushCompression push_compression(const step::Context& context);
/// How the server of a range serves, and how it is reached.
ps::ServiceOptions service_options(const step::Context& context, std::span<const std::int64_t> cuts, std::size_t index);
ps::JoinOptions join_options(const step::Context& context);
/// [ps] with the rule and the consistency that the strategy's name stands for.
ps::PsConfig paired(const std::string& strategy, ps::PsConfig ps);

/// The arena of a module as a server sees it.
ps::Server::Setup server_setup(const step::Context& context);
/// Memory of the module's device.
ps::Allocate allocate_on(const c10::Device& device);

/// A server's memory as tensors of a checkpoint, and back. Names begin with `prefix`. What a checkpoint has of other workers is left alone.
/// Names in a checkpoint, behind the server's prefix.
inline constexpr const char* kServerNumbers = "bookkeeping.numbers";
inline constexpr const char* kServerLedger = "bookkeeping.ledger";
std::vector<step::NamedTensor> save_server(ps::Server& server, const std::string& prefix, const c10::Device& device);
void load_server(ps::Server& server, std::span<const step::NamedTensor> state, const std::string& prefix, const c10::Device& device);
observe::Served served_by(const ps::Server& server);

/// Whether every value is a number, as a bool where they lie: one pass over them, and nobody waits.
at::Tensor finite_on_device(const at::Tensor& values);
/// The same, told here: waits for the device.
bool all_finite(const at::Tensor& values);
/// A batch in memory that stays where it is as long as its shape does, as a recorded pass needs it.
void copy_into(step::Batch& place, const step::Batch& batch);

}  // namespace paceline::central

// The parameter server: update rule × consistency, over one range of the arena. Three verbs: pull, report, push.
//
// A plain state machine without threads, sockets or a clock: its caller (a virtual clock, threads with a lock, gRPC, MPI) passes it events
// one by one. The same order of events gives the same bits.
//
//   pull     the worker gets the parameters, or has to wait (consistency)
//   report   the loss and the batch norms' statistics of a forward pass; the rule answers with the factor of the gradient
//   push     the gradient is dropped, gathered or applied; staleness = updates since the worker's pull
//
// Invariant: version() counts updates, and every accepted gradient's staleness is in staleness().
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/optim/range_optimizer.h"
#include "paceline/ps/config.h"
#include "paceline/ps/kernels.h"
#include "paceline/ps/ledger.h"
#include "paceline/ps/round.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {

std::shared_ptr<float[]> allocate_host(std::int64_t count);

/// What a push carries besides its gradient.
struct Push {
  float rate = 0;                   // of the schedule
  float scale = 1;                  // from the server's advice
  double loss = 0;                  // of the minibatch; NaN: unknown
  std::int64_t finite = 1;          // 0: the worker found a value that is not; a number, because pushes are sent as their bytes
  std::int64_t number = 0;          // sequence number of the minibatch, from 1 on, whichever worker computes it; 0: not numbered
  std::int64_t complete_below = 0;  // all minibatches below this one are complete on all servers
};

/// Whether values may be pushed: a NaN or an infinity would stay in the parameters forever. Values in host memory are checked here, those
/// on a GPU by the worker, which computes them there.
bool is_usable(std::span<const float> values, const Push& push, const Place& place = {});

class Server {
 public:
  struct Setup {
    std::vector<optim::Segment> segments;  // of the whole arena
    std::int64_t length = 0;               // of the whole arena, in elements
    std::int64_t begin = 0, end = 0;       // the range that this server holds
    std::int64_t statistics = 0;           // floats of the batch norms' running statistics
    int workers = 1;
    std::uint64_t seed = 0;
    Allocate allocate = allocate_host;
    Place place;
    float* parameters = nullptr;  // memory for the range; null: the server allocates it
    bool keeps_previous = false;  // the parameters before the last update, for a worker that replaces a lost one
  };

  Server(const PsConfig& config, const optim::OptimConfig& optim, const Setup& setup);

  // ---- the three verbs; pointers are to this server's range
  bool may_pull(int worker) const { return consistency_->may_pull(worker); }
  /// Only if may_pull(). Copies to `into`, unless that is the server's own memory. `rate`: the schedule's current one.
  void pull(int worker, float* into, float rate) { grant(worker), read(worker, into, rate); }
  /// The two halves of a pull: the bookkeeping, and the copy, during which only other copies may run.
  void grant(int worker);
  /// A worker that replaces one that died between its pushes to several servers computes a minibatch (`number`) that this server has
  /// already handled. For the sake of the other servers it gets the parameters of that minibatch's round again, if they were kept.
  void read(int worker, float* into, float rate, std::int64_t number = 0);
  Advice report(int worker, const Report& report, const float* statistics);
  /// Overwrites `gradient` (a step if ps.optimizer=worker); a `replica` rule leaves the worker's new parameters in it.
  Admission push(int worker, float* gradient, const Push& push);
  /// ps.lock_free: the two halves of a push: the bookkeeping, and the additions, during which all others may read and add.
  bool lock_free() const { return config_.lock_free; }
  Admission note_push(int worker, const Push& push);
  void add_without_lock(const float* gradient, const Push& push);
  bool cancelled(int worker) const { return consistency_->cancelled(worker); }
  void joined(int worker);
  void left(int worker);
  /// No worker has anything in flight: all begin with a pull.
  void begin_anew() {
    for (int i = 0; i < std::ssize(workers_); ++i) consistency_->joined(i);
  }
  /// No worker is present any more, though none has left: applies what was gathered, and keeps each worker's state.
  void all_away();
  /// What the worker computes will not arrive; the worker stays in its round.
  void interrupted(int worker) { consistency_->refused(worker); }
  /// The server was stopped and resumes: the same for all workers.
  void interrupted() {
    for (const int member : members()) interrupted(member);
  }
  bool synchronous() const { return in_rounds_; }
  std::vector<int> members() const { return consistency_->members(); }
  /// One of those workers is back, and begins with a pull.
  void returned(int worker);
  /// Counts a push that was refused because it was not finite; the worker may pull again.
  void refuse(int worker, const Push& push = {});

  // ---- duplicates and reconnects
  /// Whether a push of this minibatch was handled before and must not be used again.
  bool handled(std::int64_t number) const { return number > 0 && ledger_.handled(number); }
  /// The worker pushed a duplicate. It may pull again, and has not advanced.
  void ignore_duplicate(int worker) { consistency_->refused(worker); }
  /// Copies the answer to the worker's last push, for rules that answer with parameters. Returns false if that push was another one.
  bool repeat_answer(int worker, std::int64_t number, float* into);
  /// Whether a push is still accepted from a worker that pulled before it reconnected, or before the server was restarted. False if the
  /// consistency would have cancelled it meanwhile.
  bool may_resume(int worker) const;
  /// Counts the worker as computing again, on the version that it pulled.
  void resume(int worker) { consistency_->pulled(worker); }
  /// The minibatch is complete on all servers, whether it was pushed on its own or as part of another push.
  void complete(std::int64_t number) { ledger_.handle(number); }

  // ---- what can be observed
  void show(float* into) const { for_each_parallel(setup_.place, length(), Copy{into, shown()}); }
  /// The parameters to evaluate: the current ones or, with ps.averaging, their running mean.
  float* shown() const { return average_ && version_ > 0 ? average_.get() : parameters_; }
  bool averages() const { return average_ != nullptr; }
  float* parameters() const { return parameters_; }
  float* statistics() const { return statistics_.get(); }  // of the batch norms: Async-BN
  void settle() const { ps::settle(setup_.place); }        // waits until all work so far is done
  const Place& place() const { return setup_.place; }
  std::int64_t length() const { return setup_.end - setup_.begin; }
  std::int64_t statistics_length() const { return setup_.statistics; }
  std::int64_t version() const { return version_; }
  const std::map<std::int64_t, std::int64_t>& staleness() const { return staleness_; }  // the number of gradients with each staleness
  std::int64_t dropped() const { return dropped_; }
  std::int64_t refused() const { return refused_; }
  const UpdateRule& rule() const { return *rule_; }
  void use_stream(void* stream) { setup_.place.stream = stream; }

  // ---- for a checkpoint
  using Array = Round::Array;
  std::vector<Array> arrays();  // its memory, without the parameters, to be read or filled
  std::vector<std::int64_t> numbers() const;
  /// The part of them that determines which workers may proceed, and when.
  std::vector<std::int64_t> consistency_numbers() const { return consistency_->save(); }
  std::vector<UpdateRule::State> rule_state() const { return rule_->save(); }
  /// What workers had in progress: left out, or loaded, with or without the arrays of an update that has begun.
  enum class InProgress { left_out, missing, present };
  /// ConfigError if they do not fit, or if those arrays are needed and missing; then nothing has changed.
  void load(std::span<const std::int64_t> numbers, std::span<const UpdateRule::State> rule_state, InProgress progress);
  static constexpr const char* kKept = "kept.";  // begins the name of the array that the rule keeps for a worker
  /// That of a worker which this server no longer has: its part in what the rule keeps goes. Overwrites it.
  void forget_kept(float* kept);
  /// The minibatches that were handled; empty if pushes are not numbered. Load it before arrays(), to which it may add.
  std::vector<std::int64_t> ledger() const;
  void load_ledger(std::span<const std::int64_t> saved);

 private:
  struct Worker {
    std::int64_t pulled_version = 0;
    std::shared_ptr<float[]> pulled, kept;
    std::int64_t answered = 0;        // sequence number of the push that `answer` belongs to
    std::shared_ptr<float[]> answer;  // replica rules: the worker's new parameters; the centre they came from has moved on
  };

  Worker& worker(int index);
  Slice slice(std::int64_t offset, std::int64_t count, bool decay, float* gradient, Worker& worker) const;
  void apply_one(float* gradient, const Arrival& arrival);
  void gather(float* gradient, const Arrival& arrival, const Round::Key& key, bool first);
  void apply_gathered(int count, float rate);
  void keep_answer(Worker& worker, const float* answer, std::int64_t number);
  void read_without_lock(float* into) const;
  optim::Hyper hyper(float rate, float scale) const;
  void finish_update();
  void update(float* gradient, const optim::Hyper& hyper);
  void adjust_in_blocks(float* gradient, const Arrival& arrival, const optim::Hyper& hyper);

  PsConfig config_;
  Setup setup_;
  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<Consistency> consistency_;
  bool in_rounds_;  // every update has a contribution of each worker
  optim::RangeOptimizer optimizer_;

  float weight_decay_;
  float* parameters_ = nullptr;
  std::shared_ptr<float[]> own_parameters_, previous_, gathered_, kept_, kept_second_, statistics_, norm_, average_;
  std::vector<std::shared_ptr<float[]>> state_;  // of the optimizer
  std::vector<Worker> workers_;
  std::int64_t version_ = 0, dropped_ = 0, refused_ = 0;
  std::int64_t gathered_count_ = 0;
  int last_gathered_ = 0;  // worker
  float last_rate_ = 0;
  std::map<std::int64_t, std::int64_t> staleness_;
  Ledger ledger_;
  Round round_;
};

/// Divides an arena of `length` elements into `servers` ranges of about the same length: [i] is where range i begins, and the last entry is
/// the end. If `elementwise` is false, it cuts only between tensors.
std::vector<std::int64_t> cut_ranges(std::span<const optim::Segment> segments, std::int64_t length, int servers, bool elementwise);

}  // namespace paceline::ps

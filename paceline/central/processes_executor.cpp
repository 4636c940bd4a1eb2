// Servers and workers as processes, over gRPC or MPI (ps/transports/service.h). This is server 0's half, with the Trainer in it: it deals
// out minibatches by their numbers, has the first range of the arena, and reads the others' ranges when the model is evaluated or saved.
//
// Workers come and go: a minibatch whose worker is gone is dealt out again. A server 0 that is started again goes on from the run's last
// checkpoint, which has its range's state, and deals out the minibatches after it, except those that its journal has as complete
// (ps.replica).
//
// A minibatch is complete once its worker has an acknowledgement from every server and has told server 0. Until then it may be assigned
// again: server 0 cannot know which servers have applied it, but each server ignores duplicates (ps/ledger.h).
#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <ranges>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/central.h"
#include "paceline/central/finished.h"
#include "paceline/central/norm_reports.h"
#include "paceline/central/recovery.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_tensors.h"
#include "paceline/ps/transports/service.h"

namespace paceline::central {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 10s;          // for workers to hear that there is no more work
constexpr auto kTaskWait = 200ms;        // that a worker's question for work may take
constexpr const char* kState = "ps.0.";  // of this server, in a checkpoint
constexpr const char* kJournal = "bookkeeping.journal";

const step::Context& checked(const step::Context& context, const Settings& settings) {
  if (settings.cluster.role != ps::Cluster::Role::server)
    throw ConfigError(
        fmt::format("ps.executor=processes is started by: paceline run --servers {} --workers {} -- train … (or, with "
                    "ps.transport=mpi, by mpirun)",
                    settings.ps.servers, settings.workers));
  if (!context.module.device().is_cpu())
    throw ConfigError("servers of ps.executor=processes keep parameters in host memory; use train.device=cpu");
  if (settings.ps.statistics == kWorkerView)
    throw ConfigError("ps.statistics=worker needs the workers in this process; use ps.statistics=async or recomputed");
  return context;
}

class ProcessesExecutor final : public Central {
 public:
  ProcessesExecutor(const step::Context& given, const Settings& given_settings)
      : Central(checked(given, given_settings), given_settings),
        plan_(context(), settings(), std::ssize(cluster().servers)),
        layout_(plan_.layout()),
        host_(plan_.make_host(0)),
        options_(plan_.service_options(0)),
        recovery_(settings(), *host_, clock()) {
    options_.next_task = [this](int worker, bool visits, bool& finished) { return next_task(worker, visits, finished); };
    options_.task_done = [this](int worker, const ps::Task& task, double loss_sum, double right, std::int64_t targets) {
      task_done(worker, {.number = task.step, .loss = loss_sum, .right = right, .targets = targets});
    };
    options_.task_lost = [this](int worker, const ps::Task& task) { task_lost(worker, task); };
    options_.failed = [this](const std::exception_ptr& why) {
      {
        const std::lock_guard lock(mutex_);
        problem_ = why;
      }
      changed_.notify_all();
    };
    if (cluster().restarts == 0) serve();  // else not before it has its state again
  }

  ~ProcessesExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    observer_.reset();
    if (!server_) return;
    const Nanoseconds until = clock().now() + kFarewell;
    while (connected() > missing() && clock().now() < until) std::this_thread::sleep_for(20ms);
  }

  step::StepResult step(const step::Batch&, const step::Point& point) override {
    begin_without_checkpoint();
    recovery_.begin();
    std::unique_lock lock(mutex_);
    if (!std::exchange(begun_, true)) completed_.insert_all_below(point.step);
    const ps::Task task{.epoch = point.epoch_index, .batch = point.batch_index, .step = point.step, .rate = static_cast<float>(point.rate)};
    if (const auto before = replayed_.extract(point.step)) {  // complete before the restart
      count(before.mapped());
    } else if (!completed_.contains(task.step) && !expect(task)) {  // a worker may have completed it since the restart
      wait_for_progress(lock, [&] { return std::ssize(tasks_) < std::max<std::int64_t>(1, workers()); });
      tasks_.push_back(task);
    }
    step::StepResult result = finished_.take();
    lock.unlock();
    changed_.notify_all();
    return result;
  }

  step::StepResult finish() override {
    const auto lock = drain();
    return finished_.take();
  }

  void show(const std::string&) override {
    drain();
    auto* parameters = module().arena().parameters().data_ptr<float>();
    if (cluster().servers.size() > 1) {
      if (!observer_) {
        ps::JoinOptions options = plan_.join_options();
        options.worker = ps::kObserver;
        observer_ = ps::join(cluster(), layout_, options);
      }
      observer_->pull(parameters, 0);
    }
    host_->with([&](ps::Server& server) { server.show(parameters); });  // the first range is here
    module().refresh();
    if (layout_.statistics > 0)
      host_->with([&](ps::Server& server) { at::Tensor(module().statistics().parameters()).copy_(tensors(server).statistics()); });
  }
  void resume_training() override {}
  bool reads_batches() const override { return false; }

  // Of the others the model alone: what they keep beside it is in snapshots of their own.
  std::vector<step::NamedTensor> save() override {
    return host_->with([&](ps::Server& server) {
      std::vector<step::NamedTensor> state = tensors(server).save(kState);
      if (const std::optional<std::int64_t> journal = recovery_.snapshot_taken()) {
        // Whether the last checkpoint was written whole nobody knows here; the one before it still has its journals.
        recovery_.forget_before(std::exchange(journal_before_, std::exchange(journal_, *journal)));
        state.push_back({std::string(kState) + kJournal, at::tensor({journal_}, at::kLong)});
      }
      return state;
    });
  }
  // The module has the checkpoint's parameters by now.
  void load(std::span<const step::NamedTensor> state) override {
    if (cluster().restarts == 0)
      throw ConfigError("a run of ps.executor=processes cannot be resumed; start a new one with model.weights=CHECKPOINT");
    const std::int64_t version = host_->with([&](ps::Server& server) {
      tensors(server).load(state, kState);
      const float* parameters = module().arena().parameters().data_ptr<float>();
      std::copy_n(parameters, server.length(), server.parameters());
      return server.version();
    });
    begin_again(ps().replica ? step::find_saved(state, std::string(kState) + kJournal).item<std::int64_t>() : 0,
                fmt::format("goes on with version {}, the run's last checkpoint", version));
  }
  bool wants_checkpoint() const override { return recovery_.snapshot_due(); }

  observe::Served served() const override {
    observe::Served served = host_->with([](ps::Server& server) { return served_by(server); });
    served.predictor_ms = served.loss_predictor_ms + served.step_predictor_ms;
    return served;
  }

 private:
  const ps::Cluster& cluster() const { return settings().cluster; }
  const Clock& clock() const { return context().clock; }
  ServerTensors tensors(ps::Server& server) const { return {server, module().device()}; }
  bool knows_workers() const override { return false; }  // those in other processes keep their running statistics to themselves

  void serve() { server_ = ps::serve(cluster(), host_, layout_, options_); }
  void begin_again(std::int64_t journal, const std::string& how) {
    journal_ = journal_before_ = journal;
    const auto note = [this](ps::Journal::Kind kind, int worker, const ps::Completed& minibatch) {
      if (kind == ps::Journal::Kind::assigned) assigned_[worker] = minibatch.number;
      else if (completed_.insert(minibatch.number)) replayed_.emplace(minibatch.number, minibatch);
    };
    recovery_.resume(journal, how, note, [this] { return fmt::format("{} minibatches after it are complete", replayed_.size()); });
    serve();
  }
  void begin_without_checkpoint() {
    if (!server_) begin_again(0, "begins anew, since there was no checkpoint yet");
  }

  void count(const ps::Completed& sums) { finished_.add({sums.loss, sums.right, sums.targets}); }

  /// After a restart: a worker that had this task before may still be computing it, and reconnects when it is done. If it asks for work
  /// instead, it gets this task again; if it does neither within ps.deadline_s, another one does. Returns false if nobody had it.
  bool expect(const ps::Task& task) {
    const auto holder = std::ranges::find(assigned_, task.step, [](const auto& entry) { return entry.second; });
    if (holder == assigned_.end()) return false;
    busy_[holder->first] = task.step;
    expected_[holder->first] = {task, clock().now() + ps().deadline()};
    return true;
  }
  void reassign_expected(int asking) {
    assigned_.erase(asking);  // whoever asks for work has none
    std::erase_if(expected_, [&](const auto& entry) {
      const auto& [worker, expected] = entry;
      const bool complete = completed_.contains(expected.task.step);
      if (!complete && (worker == asking || clock().now() < expected.until)) return false;
      if (!complete) requeue(worker, expected.task);
      return true;
    });
  }
  void requeue(int worker, const ps::Task& task) {
    if (const auto given = busy_.find(worker); given != busy_.end() && given->second == task.step) busy_.erase(given);
    tasks_.push_front(task);
  }

  /// Only the first completion of a minibatch counts; workers that computed it twice have pushed duplicates. Without journals a worker that
  /// reconnected has dropped its push, so its completion does not count.
  void task_done(int worker, const ps::Completed& sums) {
    {
      const std::lock_guard lock(mutex_);
      const auto given = busy_.find(worker);
      if (!ps().replica && (given == busy_.end() || given->second != sums.number)) return;
      std::erase_if(busy_, [&](const auto& one) { return one.second == sums.number; });
      if (!completed_.insert(sums.number)) return;
      std::erase_if(tasks_, [&](const ps::Task& task) { return task.step == sums.number; });
      host_->complete(worker, sums);
      ++finished_tasks_;
      count(sums);
    }
    changed_.notify_all();
  }

  void task_lost(int worker, const ps::Task& task) {
    {
      const std::lock_guard lock(mutex_);
      if (completed_.contains(task.step)) return;
      log::warning("worker {} is gone; its minibatch {} is dealt out again", worker, task.batch + 1);
      // A worker that keeps its place gets its minibatch back: another's would fill the place a second time on servers that had the first.
      if (host_->is_expected(worker)) expected_[worker] = {task, clock().now() + ps().deadline()};
      else requeue(worker, task);
    }
    changed_.notify_all();
  }

  std::optional<ps::Task> next_task(int worker, bool visits, bool& finished) {
    // In the middle of its period a worker computes, as the server sees it, and asks nothing of it.
    const auto something_to_do = [&] {
      const bool work = expected_.contains(worker) || !tasks_.empty();
      return (!visits || host_->may_begin(worker, work)) && work;
    };
    std::unique_lock lock(mutex_);
    reassign_expected(worker);
    try {
      changed_.wait_for(lock, cluster().ranks ? 0ms : kTaskWait, [&] { return over_ || problem_ || something_to_do(); });
      if (problem_) std::rethrow_exception(problem_);  // whatever ends the run, all workers are told
      finished = over_;
      if (over_ || !something_to_do()) return std::nullopt;
    } catch (const PeerError&) {  // it waits for somebody who is late, and so does the run
      problem_ = std::current_exception();
      changed_.notify_all();
      throw;
    }
    const auto own = expected_.extract(worker);
    ps::Task task = own ? own.mapped().task : tasks_.front();
    if (!own) tasks_.pop_front();
    task.complete_below = completed_.watermark();
    busy_[worker] = task.step;
    if (recovery_.journals()) host_->assign(worker, task.step);
    changed_.notify_all();
    return task;
  }

  /// Nothing is under way, nor comes to be as long as the lock is held.
  std::unique_lock<std::mutex> drain() {
    begin_without_checkpoint();
    std::unique_lock lock(mutex_);
    wait_for_progress(lock, [&] { return tasks_.empty() && busy_.empty(); });
    return lock;
  }

  /// Whom nobody waits for at the end: where the run fails, those who still compute.
  std::int64_t missing() const {
    const std::lock_guard lock(mutex_);
    return problem_ ? std::ssize(busy_) : 0;
  }
  std::int64_t connected() const {
    return std::ranges::count_if(server_->workers(), [](int worker) { return worker != ps::kObserver; });
  }

  /// Waits as long as something is finished now and then, or could be: whoever computes and is silent is forgotten, and whoever is waited
  /// for by others too long becomes the problem (next_task). Ranks do not beat, so that theirs may be taken for stopped.
  template <class Condition>
  void wait_for_progress(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    while (!condition()) {
      if (problem_) std::rethrow_exception(problem_);
      const std::int64_t before = finished_tasks_;
      const bool moved = changed_.wait_for(lock, ps().patience(), [&] { return condition() || problem_ || finished_tasks_ != before; });
      if (moved) continue;
      const std::string computing =
          busy_.empty() ? "nobody computes one" : fmt::format("computing: {}", fmt::join(std::views::keys(busy_), ", "));
      const std::string what = fmt::format("no worker finished a minibatch for {:.1f} s ({})", seconds(ps().patience()), computing);
      if (!busy_.empty() && !cluster().ranks) {
        log::warning("{}; they are heard of, and waited for", what);
        continue;
      }
      const std::int64_t finished = finished_tasks_;
      lock.unlock();  // the server's lock comes before this one
      throw PeerError(-1, "step", finished,
                      fmt::format("{}; connected workers: {}, servers: {}; where they need longer, raise ps.deadline_s", what, connected(),
                                  fmt::join(cluster().servers, ",")));
    }
  }

  ServerPlan plan_;
  ps::Layout layout_;
  std::shared_ptr<ps::Host> host_;
  ps::ServiceOptions options_;
  Recovery recovery_;
  std::int64_t journal_ = 0, journal_before_ = 0;  // that the last checkpoint, and the one before it, begins with
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ps::Task> tasks_;
  std::map<int, std::int64_t> busy_;  // workers that have a task, and its step
  ps::SequenceSet completed_;         // steps
  struct Expected {
    ps::Task task;
    Nanoseconds until;
  };
  std::map<int, std::int64_t> assigned_;            // after a restart: the last step of each worker, from the journal
  std::map<int, Expected> expected_;                // of workers that are expected back, with what they had
  std::map<std::int64_t, ps::Completed> replayed_;  // sums of steps that were completed before the restart
  bool begun_ = false;
  std::int64_t finished_tasks_ = 0;
  Finished finished_;
  bool over_ = false;
  std::exception_ptr problem_;  // nobody is served any more
  std::unique_ptr<ps::Service> server_;
  std::unique_ptr<ps::RemoteClient> observer_;
};

}  // namespace

std::unique_ptr<Central> make_processes_executor(const step::Context& context, const Settings& settings) {
  return std::make_unique<ProcessesExecutor>(context, settings);
}

}  // namespace paceline::central

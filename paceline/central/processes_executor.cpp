// Servers and workers as processes, over gRPC or MPI (ps/transports/service.h). This is server 0's half, which has the Trainer: it assigns
// minibatches by number, holds the first range of the arena, and reads the other ranges when the model is evaluated or saved.
//
// A checkpoint has the state of all servers, and what workers keep for themselves: server 0 asks for both while nothing is in flight. When
// a run is resumed, every process takes its own part of it (train/remote_processes.cpp).
//
// Workers join and leave: a minibatch whose worker is gone is assigned again. A restarted server 0 resumes from the run's last checkpoint
// and assigns the minibatches after it, except those that are complete in its journal (ps.replica). minibatches.h keeps track of them.
#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <ranges>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/central.h"
#include "paceline/central/minibatches.h"
#include "paceline/central/norm_reports.h"
#include "paceline/central/recovery.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_tensors.h"
#include "paceline/central/state_message.h"
#include "paceline/central/worker_states.h"
#include "paceline/ps/transports/service.h"

namespace paceline::central {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 10s;    // for workers to learn that there is no more work
constexpr auto kTaskWait = 200ms;  // how long a worker's request for work may take

const step::Context& checked(const step::Context& context, const Settings& settings) {
  if (settings.cluster.role != ps::Cluster::Role::server)
    throw ConfigError(
        fmt::format("ps.executor=processes is started by: paceline run --servers {} --workers {} -- train … (or, with "
                    "ps.transport=mpi, by mpirun)",
                    settings.ps.servers, settings.workers));
  if (!context.model.device().is_cpu())
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
        concurrent_(plan_.make_server(0)),
        options_(plan_.service_options(0)),
        recovery_(settings(), *concurrent_, clock()),
        minibatches_(ps().replica, ps().deadline()) {
    options_.wants_state = [this](int worker) { return states_.wanted(worker); };
    options_.keep = [this](int worker, std::string_view state) { states_.keep(worker, state); };
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
    const bool was_here = cluster().restarts > 0 && recovery_.find_stem();  // else it was killed before the run began
    if (!settings().resumes && was_here) begin_again(0, "begins anew, since there was no checkpoint yet");
    else if (!settings().resumes) recovery_.begin();
    server_ = ps::serve(cluster(), concurrent_, layout_, options_);
  }

  ~ProcessesExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    observer_.reset();
    if (!concurrent_->has_state()) {
      concurrent_->close("the run could not be resumed");
      return;
    }
    const Nanoseconds until = clock().now() + kFarewell;
    while (connected() > missing() && clock().now() < until) std::this_thread::sleep_for(20ms);
  }

  step::StepResult step(const step::Batch&, const step::Point& point) override {
    std::unique_lock lock(mutex_);
    const ps::Task task{.epoch = point.epoch_index, .batch = point.batch_index, .step = point.step, .rate = static_cast<float>(point.rate)};
    if (minibatches_.begin(task, clock().now())) {
      wait_for_progress(lock, [&] { return minibatches_.waiting() < std::max<std::int64_t>(1, workers()); });
      minibatches_.add(task);
    }
    step::StepResult result = minibatches_.take_sums();
    lock.unlock();
    changed_.notify_all();
    return result;
  }

  step::StepResult finish() override {
    const auto lock = drain();
    return minibatches_.take_sums();
  }

  void show(const std::string&) override {
    drain();
    auto* parameters = module().arena().parameters().data_ptr<float>();
    if (cluster().servers.size() > 1) {
      if (!observer_) {
        ps::JoinOptions options = plan_.join_options();
        options.worker = ps::kObserver;
        observer_ = ps::join(cluster(), layout_, options);
        check_resumed();
      }
      observer_->pull(parameters, 0);
    }
    concurrent_->with([&](ps::Server& server) { server.show(parameters); });  // the first range is here
    module().refresh();
    if (layout_.statistics > 0)
      concurrent_->with([&](ps::Server& server) { at::Tensor(module().statistics().parameters()).copy_(tensors(server).statistics()); });
  }
  void resume_training() override {}
  bool reads_batches() const override { return false; }

  // After show(), so nothing is in flight.
  std::vector<step::NamedTensor> save() override {
    ask_workers();
    std::vector<step::NamedTensor> state = concurrent_->with([&](ps::Server& server) {
      std::vector<step::NamedTensor> own = tensors(server).save(server_prefix(0));
      if (const std::optional<std::int64_t> journal = recovery_.snapshot_taken(own, server_prefix(0)))
        // It is not known here whether the last checkpoint was written completely; the one before it still has its journals.
        recovery_.forget_before(std::exchange(journal_before_, std::exchange(journal_, *journal)));
      return own;
    });
    if (observer_)
      for (const std::string& packed : observer_->states())
        for (step::NamedTensor& item : unpack_state(packed, "another server's state")) state.push_back(std::move(item));
    states_.save(state);
    return state;
  }
  // The module has the checkpoint's parameters by now.
  void load(std::span<const step::NamedTensor> state) override {
    ensure(settings().resumes, "processes are told beforehand that a checkpoint follows, and serve nobody until then");
    const bool was_here = cluster().restarts > 0 && recovery_.find_stem();
    if (!was_here) check_servers(state, cluster().servers.size());
    for (std::size_t i = 0; i < cluster().servers.size() && !was_here; ++i)
      loaded_.push_back(step::find_saved(state, server_prefix(i) + kServerVersion).item<std::int64_t>());
    const std::int64_t version = concurrent_->with([&](ps::Server& server) {
      if (was_here) tensors(server).load(state, server_prefix(0));
      else tensors(server).load_anew(state, server_prefix(0));
      const float* parameters = module().arena().parameters().data_ptr<float>();
      if (!server.averages()) std::copy_n(parameters, server.length(), server.parameters());
      return server.version();
    });
    states_.load(state, workers());
    const std::int64_t journal = recovery_.journal_after(state, server_prefix(0));
    if (was_here) return begin_again(journal, fmt::format("goes on with version {}, the run's last checkpoint", version));
    journal_ = journal_before_ = journal;
    recovery_.begin_with_checkpoint(journal);
  }
  bool wants_checkpoint() const override { return recovery_.snapshot_due(); }

  observe::Served served() const override {
    observe::Served served = concurrent_->with([](ps::Server& server) { return served_by(server); });
    served.predictor_ms = served.loss_predictor_ms + served.step_predictor_ms;
    return served;
  }

 private:
  const ps::Cluster& cluster() const { return settings().cluster; }
  const Clock& clock() const { return context().clock; }
  ServerTensors tensors(ps::Server& server) const { return {server, module().device()}; }
  bool knows_workers() const override { return false; }  // workers in other processes do not send their running statistics

  void begin_again(std::int64_t journal, const std::string& how) {
    journal_ = journal_before_ = journal;
    recovery_.resume(
        journal, how, [this](auto... event) { minibatches_.replay(event...); },
        [this] { return fmt::format("{} minibatches after it are complete", minibatches_.replayed()); });
  }

  /// Before anything is evaluated or saved: the other servers look for the checkpoint themselves, each on the disk of its host.
  void check_resumed() const {
    for (const auto& [begin, version] : observer_->resumed()) {
      const auto server = static_cast<std::size_t>(std::ranges::find(plan_.cuts(), begin) - plan_.cuts().begin());
      if (server < loaded_.size() && loaded_[server] != version)
        throw ConfigError(fmt::format(
            "server {} goes on from another checkpoint than server 0: its version is {} there, and {} in that of server 0; give "
            "all of them the same",
            server, version, loaded_[server]));
    }
  }

  /// Everybody asks for work, since nothing is in flight.
  void ask_workers() {
    if (!ps().pushes_steps() && context().compression == "none") return;  // they keep nothing
    const auto look = [this] {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();  // who waits for work is asked first
      if (problem_) std::rethrow_exception(problem_);
    };
    states_.gather([this] { return workers_here(); }, look, clock(), ps().patience());
  }

  void task_done(int worker, const ps::Completed& sums) {
    {
      const std::lock_guard lock(mutex_);
      if (!minibatches_.complete(worker, sums)) return;
      concurrent_->complete(worker, sums);
    }
    changed_.notify_all();
  }

  void task_lost(int worker, const ps::Task& task) {
    {
      const std::lock_guard lock(mutex_);
      if (!minibatches_.lose(worker, task, concurrent_->is_expected(worker), clock().now())) return;
      log::warning("worker {} is gone; its minibatch {} is dealt out again", worker, task.batch + 1);
    }
    changed_.notify_all();
  }

  std::optional<ps::Task> next_task(int worker, bool visits, bool& finished) {
    // In the middle of its period a worker counts as computing, and requests nothing from the server.
    const auto something_to_do = [&] {
      const bool work = minibatches_.any_for(worker);
      return (!visits || concurrent_->may_begin(worker, work)) && work;
    };
    std::unique_lock lock(mutex_);
    minibatches_.asks(worker, clock().now());
    try {
      changed_.wait_for(lock, cluster().ranks ? 0ms : kTaskWait,
                        [&] { return over_ || problem_ || states_.wanted(worker) || something_to_do(); });
      if (problem_) std::rethrow_exception(problem_);  // all workers are told of whatever ends the run
      finished = over_;
      if (over_ || !something_to_do()) return std::nullopt;
    } catch (const PeerError&) {  // it waits for a worker that is late, and so does the run
      problem_ = std::current_exception();
      changed_.notify_all();
      throw;
    }
    const ps::Task task = minibatches_.assign(worker);
    if (recovery_.journals()) concurrent_->assign(worker, task.step);
    changed_.notify_all();
    return task;
  }

  /// Nothing is in flight, and nothing starts while the lock is held.
  std::unique_lock<std::mutex> drain() {
    std::unique_lock lock(mutex_);
    wait_for_progress(lock, [&] { return minibatches_.all_complete(); });
    return lock;
  }

  /// The workers that the end does not wait for: if the run fails, those that still compute.
  std::int64_t missing() const {
    const std::lock_guard lock(mutex_);
    return problem_ ? std::ssize(minibatches_.assigned()) : 0;
  }
  std::vector<int> workers_here() const {
    std::vector<int> here = server_->workers();
    std::erase(here, ps::kObserver);
    return here;
  }
  std::int64_t connected() const { return std::ssize(workers_here()); }

  /// Waits as long as minibatches are finished from time to time, or could be: a silent worker is forgotten, and one that others wait for
  /// too long becomes the problem (next_task). Ranks send no heartbeats, so a long computation may be taken for a stopped rank.
  template <class Condition>
  void wait_for_progress(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    while (!condition()) {
      if (problem_) std::rethrow_exception(problem_);
      const std::int64_t before = minibatches_.finished();
      const bool moved =
          changed_.wait_for(lock, ps().patience(), [&] { return condition() || problem_ || minibatches_.finished() != before; });
      if (moved) continue;
      const auto& assigned = minibatches_.assigned();
      const std::string computing =
          assigned.empty() ? "nobody computes one" : fmt::format("computing: {}", fmt::join(std::views::keys(assigned), ", "));
      const std::string what = fmt::format("no worker finished a minibatch for {:.1f} s ({})", seconds(ps().patience()), computing);
      if (!assigned.empty() && !cluster().ranks) {
        log::warning("{}; they are heard of, and waited for", what);
        continue;
      }
      lock.unlock();  // the server's lock comes before this one
      throw PeerError(-1, "step", before,
                      fmt::format("{}; connected workers: {}, servers: {}; if they need longer, raise ps.deadline_s", what, connected(),
                                  fmt::join(cluster().servers, ",")));
    }
  }

  ServerPlan plan_;
  ps::ArenaLayout layout_;
  std::shared_ptr<ps::ConcurrentServer> concurrent_;
  ps::ServiceOptions options_;
  Recovery recovery_;
  std::vector<std::int64_t> loaded_;               // the versions of all servers in the checkpoint that the run began with
  std::int64_t journal_ = 0, journal_before_ = 0;  // that the last checkpoint, and the one before it, begins with
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Minibatches minibatches_;
  bool over_ = false;
  std::exception_ptr problem_;  // set: the service has ended
  WorkerStates states_;
  std::unique_ptr<ps::Service> server_;
  std::unique_ptr<ps::RemoteClient> observer_;
};

}  // namespace

std::unique_ptr<Central> make_processes_executor(const step::Context& context, const Settings& settings) {
  return std::make_unique<ProcessesExecutor>(context, settings);
}

}  // namespace paceline::central

// Servers and workers as processes, over gRPC or MPI (ps/transports/service.h). This is server 0's half, which has the Trainer: it assigns
// minibatches by number, holds the first range of the arena, and reads the other ranges when the model is evaluated.
//
// Every process writes its own part of a checkpoint: the servers their ranges, workers what they keep for themselves. While nothing is in
// flight, server 0 tells them to (process_holders.h). When a run is resumed, every process reads its own part (train/remote_processes.cpp).
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
#include "paceline/central/process_holders.h"
#include "paceline/central/recovery.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_tensors.h"
#include "paceline/ps/transports/service.h"

namespace paceline::central {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 10s;    // how long workers have to learn that there is no more work
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
  ProcessesExecutor(const step::Context& given, const Settings& given_settings, const step::Resumed* resumed)
      : Central(checked(given, given_settings), given_settings),
        plan_(context(), settings(), std::ssize(cluster().servers)),
        layout_(plan_.layout()),
        concurrent_(plan_.make_server(0)),
        options_(plan_.service_options(0)),
        minibatches_(ps().replica, ps().deadline()),
        recovery_(settings(), *concurrent_, clock(), resumed ? resume(*resumed) : begin()),
        holders_(leader(), orders_) {
    if (resumed) holders_.remember([saved = saved_workers(resumed->state)] { return saved; });
    concurrent_->assigns();
    options_.order = [this](int worker) { return orders_.order(worker); };
    options_.answered = [this](int worker, std::string_view answer) { orders_.answered(worker, answer); };
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
    server_ = ps::serve(cluster(), concurrent_, layout_, options_);
  }

  ~ProcessesExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    observer_.reset();
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
    if (cluster().servers.size() > 1) observer().pull(module().arena().parameters().data_ptr<float>(), 0);
    show_own();
    module().refresh();
  }
  void resume_training() override {}
  bool reads_batches() const override { return false; }

  step::Holders* holders() override { return &holders_; }

  // After the roll call, so nothing is in flight.
  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = concurrent_->with([&](ps::Server& server) {
      std::vector<step::NamedTensor> own = tensors(server).save(server_prefix(0));
      recovery_.snapshot_taken(own, server_prefix(0));
      return own;
    });
    holders_.add_absent_workers(state);
    return state;
  }
  void checkpoint_complete(const std::function<std::vector<step::NamedTensor>()>& read) override {
    holders_.remember(read);
    recovery_.checkpoint_complete();
  }
  void load(std::span<const step::NamedTensor>) override {
    throw InternalError("workers may have been served already: this executor takes the state of a resumed run when it is made");
  }
  bool wants_checkpoint() const override { return recovery_.snapshot_due(); }

  observe::Served served() const override {
    auto served = concurrent_->with([](ps::Server& server) { return served_by(server); });
    served.predictor_ms = served.loss_predictor_ms + served.step_predictor_ms;
    return served;
  }

 private:
  const ps::Cluster& cluster() const { return settings().cluster; }
  const Clock& clock() const { return context().clock; }
  ServerTensors tensors(ps::Server& server) const { return {server, module().device()}; }
  bool knows_workers() const override { return false; }  // workers in other processes do not send their running statistics

  Beginning begin() { return was_here() ? restarted(0, "starts from the beginning, since there was no checkpoint yet") : Beginning{}; }
  /// The server has the checkpoint's parameters, because the module has.
  Beginning resume(const step::Resumed& resumed) {
    const bool again = was_here();
    resumed.give_to([&](std::span<const step::NamedTensor> state) {
      for (std::size_t i = 0; i < plan_.servers() && !again; ++i) loaded_.push_back(plan_.saved(state, i).version());
      concurrent_->with([&](ps::Server& server) {
        if (again) tensors(server).load(plan_.saved(state, 0));  // perhaps written before its range changed
        else tensors(server).load_anew(plan_.saved(state, 0));
      });
    });
    const std::int64_t journal = journal_after(settings(), resumed.state, server_prefix(0));
    if (!again) return {.state = Beginning::State::checkpoint, .journal = journal};
    const std::int64_t version = concurrent_->with([](ps::Server& server) { return server.version(); });
    return restarted(journal, fmt::format("resumes from the run's last checkpoint, version {}", version));
  }
  /// Whether it has run before and was lost. If it was lost before the run began, it has not.
  bool was_here() const { return cluster().restarts > 0 && ServerFiles(settings(), clock()).find_stem(); }
  Beginning restarted(std::int64_t journal, const std::string& how) {
    return {.state = Beginning::State::restarted,
            .journal = journal,
            .how = how,
            .progress = [this](auto... event) { minibatches_.replay(event...); },
            .rest = [this] { return fmt::format("{} minibatches after it are complete", minibatches_.replayed()); }};
  }

  ProcessHolders::Leader leader() {
    return {.range = plan_.range(0),
            .servers = plan_.servers(),
            .workers = workers(),
            .workers_hold = ps().pushes_steps() || context().compression != "none",
            .bring_up_to_date = [this] { show_own(); },
            .observer = [this]() -> ps::RemoteClient& { return observer(); },
            .workers_here = [this] { return workers_here(); },
            .wake_workers = [this] { wake_workers(); },
            .clock = clock(),
            .patience = ps().patience()};
  }

  void show_own() {
    drain();
    concurrent_->with([&](ps::Server& server) {
      server.show(module().arena().parameters().data_ptr<float>());
      if (layout_.statistics > 0) at::Tensor(module().statistics().parameters()).copy_(tensors(server).statistics());
    });
  }

  /// Those that wait for work look whether there is an order.
  void wake_workers() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (problem_) std::rethrow_exception(problem_);
  }

  ps::RemoteClient& observer() {
    if (observer_) return *observer_;
    ps::JoinOptions options = plan_.join_options();
    options.worker = ps::kObserver;
    auto joined = ps::join(cluster(), layout_, options);
    check_resumed(*joined);
    observer_ = std::move(joined);
    return *observer_;
  }

  /// Before anything is evaluated or saved: the other servers look for the checkpoint themselves, each on the disk of its host.
  void check_resumed(const ps::RemoteClient& observer) const {
    for (const auto& [begin, version] : observer.resumed()) {
      const auto server = static_cast<std::size_t>(std::ranges::find(plan_.cuts(), begin) - plan_.cuts().begin());
      if (server < loaded_.size() && loaded_[server] != version)
        throw ConfigError(fmt::format(
            "server {} resumed from another checkpoint than server 0: its version is {} there, and {} in server 0's; give all of them "
            "the same",
            server, version, loaded_[server]));
    }
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
      log::warning("worker {} is gone; its minibatch {} will be assigned again", worker, task.batch + 1);
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
                        [&] { return over_ || problem_ || orders_.any(worker) || something_to_do(); });
      if (problem_) std::rethrow_exception(problem_);  // whatever ends the run, all workers are told
      finished = over_;
      if (over_ || !something_to_do()) return std::nullopt;
    } catch (const PeerError&) {  // a late worker keeps this one waiting, and with it the run
      problem_ = std::current_exception();
      changed_.notify_all();
      throw;
    }
    const ps::Task task = minibatches_.assign(worker);
    concurrent_->assign(worker, task.step);
    changed_.notify_all();
    return task;
  }

  /// Waits until nothing is in flight; nothing starts while the lock is held.
  std::unique_lock<std::mutex> drain() {
    std::unique_lock lock(mutex_);
    wait_for_progress(lock, [&] { return minibatches_.all_complete(); });
    return lock;
  }

  /// How many workers the end of the run does not wait for: if it fails, those that are still computing.
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

  /// Waits for the condition as long as minibatches may still finish: a silent worker is forgotten, and one that keeps others waiting too
  /// long ends the run (next_task). Ranks send no heartbeats, so a long computation may look like a stopped rank.
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
          assigned.empty() ? "no worker is computing one" : fmt::format("computing: {}", fmt::join(std::views::keys(assigned), ", "));
      const std::string what = fmt::format("no worker finished a minibatch for {:.1f} s ({})", seconds(ps().patience()), computing);
      if (!assigned.empty() && !cluster().ranks) {
        log::warning("{}; they are alive, so the run waits for them", what);
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
  std::vector<std::int64_t> loaded_;  // the versions of all servers in the checkpoint from which the run resumed
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Minibatches minibatches_;
  Recovery recovery_;
  bool over_ = false;
  std::exception_ptr problem_;  // set: the service has ended
  WorkerOrders orders_;
  ProcessHolders holders_;
  std::unique_ptr<ps::Service> server_;
  std::unique_ptr<ps::RemoteClient> observer_;
};

}  // namespace

std::unique_ptr<Central> make_processes_executor(const step::Context& context, const Settings& settings, const step::Resumed* resumed) {
  return std::make_unique<ProcessesExecutor>(context, settings, resumed);
}

}  // namespace paceline::central

// Workers as threads of one process, truly asynchronous: each has a module of its own and visits the servers at its own pace, on its CPU
// cores or on its stream of one GPU. The Trainer's thread assigns minibatches to workers that are idle and allowed to pull, so that none
// waits inside a pull for work that is not assigned yet.
#include <ATen/ATen.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/central/central.h"
#include "paceline/central/central_worker.h"
#include "paceline/central/finished.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_tensors.h"
#include "paceline/ps/client.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/host_copy.h"
#include "paceline/tensor/recorded.h"

namespace paceline::central {
namespace {

struct Task {
  step::Batch batch;
  step::Point point;
};

/// What the workers share with the Trainer's thread.
struct Board {
  std::mutex mutex;
  std::condition_variable_any changed;  // also notified of a request to stop
  Finished finished;
  Nanoseconds busy{0};          // of all workers,
  std::int64_t iterations = 0;  // in this many minibatches
  std::unique_ptr<ps::TimingRecorder> recorder;
  std::vector<ps::Visit> visits;  // by worker, of its minibatch; each written by its own thread
  std::exception_ptr problem;
};

/// One worker: a thread around a CentralWorker.
class ThreadWorker {
 public:
  ThreadWorker(const step::Context& context, const Settings& settings, std::unique_ptr<ps::Client> client, int index, Board& board)
      : context_(context),
        workers_(settings.workers),
        threads_(settings.threads),
        worker_(context, settings, std::move(client), index),
        index_(index),
        board_(board) {
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }

  // ---- for the Trainer's thread, with the board's lock held
  bool idle() const { return !task_; }
  bool visits() const { return visits_; }
  void give(Task task) { task_ = std::move(task); }
  void leave() { thread_.request_stop(); }

  const at::Tensor& running() const { return worker_.running(); }
  CentralWorker& worker() { return worker_; }  // while it is idle

 private:
  void record() {
    ps::Visit& visit = board_.visits[static_cast<std::size_t>(index_)];
    visit.minibatch = task_->point.step - 1;
    board_.recorder->record(index_, iteration_++, worker_.durations(), visit);
    visit = {};
  }

  void work(const std::stop_token& stop) {
    try {
      const OwnCores cores(index_, workers_);
      const tensor::OwnStream stream(context_.model.device());
      tensor::configure_libtorch(context_.model.device(), context_.model.precision(), threads_, context_.repeatable);
      while (true) {
        {
          std::unique_lock lock(board_.mutex);
          board_.changed.wait(lock, stop, [&] { return task_.has_value(); });
          if (stop.stop_requested()) return;
        }
        const Nanoseconds began = context_.clock.now();
        const at::Tensor sums = worker_.minibatch(task_->batch, task_->point);
        {
          const std::lock_guard lock(board_.mutex);
          board_.busy += context_.clock.now() - began, ++board_.iterations;
          board_.finished.add({sums[0].item<double>(), sums[1].item<double>(), task_->batch.targets.numel()});
          visits_ = worker_.visits();
          if (board_.recorder) record();
          task_.reset();
        }
        board_.changed.notify_all();
      }
    } catch (...) {
      {
        const std::lock_guard lock(board_.mutex);
        if (!board_.problem) board_.problem = std::current_exception();
        task_.reset();
      }
      board_.changed.notify_all();
    }
  }

  const step::Context& context_;
  int workers_;  // of the run
  int threads_;  // of this one
  CentralWorker worker_;
  int index_;
  Board& board_;
  bool visits_ = true;
  std::int64_t iteration_ = 0;
  std::optional<Task> task_;
  std::jthread thread_;
};

class ThreadsExecutor final : public Central {
 public:
  ThreadsExecutor(const step::Context& given, const Settings& given_settings)
      : Central(given, given_settings), norms_(module()), plan_(context(), settings(), ps().servers) {
    for (std::size_t i = 0; i < plan_.servers(); ++i) servers_.push_back(plan_.make_server(i));
    if (!settings().timing.record.empty()) record();
    for (int i = 0; i < workers(); ++i)
      threads_.push_back(
          std::make_unique<ThreadWorker>(context(), settings(), ps::make_in_process_client(servers_, plan_.cuts(), i), i, board_));
  }

  ~ThreadsExecutor() override {
    for (const auto& concurrent : servers_) concurrent->close("the run has ended");
    {
      const std::lock_guard lock(board_.mutex);
      for (const auto& worker : threads_) worker->leave();
    }
    board_.changed.notify_all();
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    Task task{{batch.inputs.clone(), batch.targets.clone(), batch.global_samples}, point};  // the feed reuses its memory
    tensor::synchronize(module().device());  // the worker's stream does not wait for this one
    std::unique_lock lock(board_.mutex);
    std::size_t chosen = 0;
    board_.changed.wait(lock, [&] { return board_.problem || choose(chosen); });
    if (board_.problem) std::rethrow_exception(board_.problem);
    threads_[chosen]->give(std::move(task));
    next_ = chosen + 1;
    step::StepResult result = board_.finished.take();
    lock.unlock();
    board_.changed.notify_all();
    return result;
  }

  step::StepResult finish() override {
    drain();
    const std::lock_guard lock(board_.mutex);
    return board_.finished.take();
  }

  void show(const std::string& view) override {
    drain();
    at::Tensor parameters = module().arena().parameters();
    for (std::size_t i = 0; i < servers_.size(); ++i)
      servers_[i]->with([&](ps::Server& server) { parameters.narrow(0, plan_.cuts()[i], server.length()).copy_(tensors(server).shown()); });
    module().refresh();
    if (!norms_.any()) return;
    if (view == kWorkerView) return norms_.show(threads_.front()->running());
    servers_[0]->with([&](ps::Server& server) { norms_.show(tensors(server).statistics()); });
  }
  void resume_training() override {}

  std::vector<step::NamedTensor> save() override {
    drain();
    std::vector<step::NamedTensor> state;
    for (std::size_t i = 0; i < servers_.size(); ++i)
      servers_[i]->with([&](ps::Server& server) {
        for (step::NamedTensor& item : tensors(server).save(server_prefix(i))) state.push_back(std::move(item));
      });
    for (std::size_t i = 0; i < threads_.size(); ++i)
      for (const step::NamedTensor& item : threads_[i]->worker().save())
        state.push_back({.name = worker_prefix(i) + item.name, .tensor = tensor::host_copy(item.tensor), .copied = true});
    return state;
  }

  /// The servers have the checkpoint's parameters, because the module had them when they were made.
  void load(std::span<const step::NamedTensor> state) override {
    for (std::size_t i = 0; i < servers_.size(); ++i)
      servers_[i]->with([&](ps::Server& server) { tensors(server).load_anew(plan_.saved(state, i)); });
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const std::vector<step::NamedTensor> mine = saved_worker(state, i);
      if (i == 0 || !mine.empty()) threads_[i]->worker().load(mine);  // a worker that did not exist then starts over
    }
  }

  observe::Served served() const override {
    observe::Served served = servers_[0]->with([](ps::Server& server) { return served_by(server); });
    served.predictor_ms = served.loss_predictor_ms + served.step_predictor_ms;
    const std::lock_guard lock(board_.mutex);
    if (board_.iterations > 0) served.iteration_ms = 1e3 * seconds(board_.busy) / static_cast<double>(board_.iterations);
    return served;
  }

 private:
  ServerTensors tensors(ps::Server& server) const { return {server, module().device()}; }

  /// The server defines the order of events; there is exactly one.
  void record() {
    board_.recorder = std::make_unique<ps::TimingRecorder>(settings().timing.record, workers());
    board_.visits.resize(static_cast<std::size_t>(workers()));
    servers_[0]->watch([this, events = std::int64_t{0}](ps::Journal::Kind kind, int worker) mutable {
      using Kind = ps::Journal::Kind;
      ps::Visit& visit = board_.visits[static_cast<std::size_t>(worker)];
      if (kind == Kind::pulled || kind == Kind::granted) visit.pulled = ++events;
      else if (kind == Kind::reported) visit.reported = ++events;
      else if (kind == Kind::pushed || kind == Kind::refused) visit.pushed = ++events;
    });
  }

  /// An idle worker that need not wait, searched from the one after the last choice.
  bool choose(std::size_t& chosen) {
    for (std::size_t k = 0; k < threads_.size(); ++k) {
      const std::size_t i = (next_ + k) % threads_.size();
      const auto lets = [i](const auto& concurrent) { return concurrent->may_pull(static_cast<int>(i)); };
      if (!threads_[i]->idle() || (threads_[i]->visits() && !std::ranges::all_of(servers_, lets))) continue;
      chosen = i;
      return true;
    }
    return false;
  }

  void drain() {
    std::unique_lock lock(board_.mutex);
    board_.changed.wait(lock, [&] { return std::ranges::all_of(threads_, [](const auto& worker) { return worker->idle(); }); });
    if (board_.problem) std::rethrow_exception(board_.problem);
  }

  NormReports norms_;
  ServerPlan plan_;
  std::vector<std::shared_ptr<ps::ConcurrentServer>> servers_;
  mutable Board board_;
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<ThreadWorker>> threads_;
};

}  // namespace

std::unique_ptr<Central> make_threads_executor(const step::Context& context, const Settings& settings) {
  return std::make_unique<ThreadsExecutor>(context, settings);
}

}  // namespace paceline::central

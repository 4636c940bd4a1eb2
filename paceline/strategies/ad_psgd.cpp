// Asynchronous decentralised parallel SGD (Lian et al., 2018): every worker trains at its own pace, and after each step averages with one
// random neighbour, without waiting for any other.
//
// Workers of even rank ask and those of odd rank answer, so that no two ever wait for each other. A worker that asks sends its replica and
// receives the other's; both then move by half of the difference. On the answering side, a thread replies at any time, using a copy of the
// replica as the last step left it; the worker applies the accumulated changes between two steps, so that no pass ever sees half a change.
//   asking: d = (x_i − x_j)/2, x_i ← x_i − d;   answering, between its steps: x_j ← x_j + d
// The sum of all replicas is preserved, whatever the order. That order depends on timing, so runs do not repeat bit for bit.
#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "paceline/base/log.h"
#include "paceline/base/random.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/pending.h"
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

constexpr int kQuestion = 0, kAnswer = 1;                  // tags
constexpr auto kPatience = std::chrono::microseconds(50);  // how often a worker checks for a question
constexpr float kLastQuestion = 1;                         // in the last element of a question: no other follows

class AdPsgd final : public data_parallel::Meeting {
 public:
  explicit AdPsgd(const data_parallel::MeetingSetup& setup) : Meeting(setup) { prepare(); }

  ~AdPsgd() override {
    try {
      if (own_ && asks()) say_farewell();
      if (answering_.joinable()) answering_.join();
    } catch (const std::exception& problem) {
      log::debug("ad_psgd: {}", problem.what());
      if (answering_.joinable()) answering_.join();
    }
  }

  // No worker may be asked before it has loaded its state.
  void loaded() override {
    if (published_.defined()) {
      const std::lock_guard lock(mutex_);
      published_.copy_(parameters());
    }
    comm().run(comm::barrier());
  }

  void prepare() override {
    if (comm().size() == 1) return;
    if (!own_) {
      own_ = comm().split(0, comm().rank());  // questions arrive at any time
      const auto allocate = data_parallel::allocate_from(comm());
      question_ = allocate(parameters().numel() + 1, parameters().options());
      answer_ = allocate(parameters().numel(), parameters().options());
    }
    const std::lock_guard lock(mutex_);
    published_ = parameters().clone();
    change_ = at::zeros_like(published_);
    if (!asks() && !answering_.joinable()) answering_ = std::thread([this] { answer_questions(); });
  }

  std::int64_t meet(const step::Point& point) override {
    if (comm().size() == 1) return 0;
    if (asks()) return ask(point.step);
    take_changes();
    return 0;
  }

  // Answers to other workers may still change this one, so all synchronise first; then no question is in flight.
  void agree() override {
    comm().run(comm::barrier());
    {
      const std::lock_guard lock(mutex_);
      if (change_.defined()) parameters().add_(change_);
    }
    average(parameters());
  }

  std::vector<step::NamedTensor> memory() override {
    if (!change_.defined()) return {};
    return {{"change", change_}};
  }
  bool remembers_replica() const override { return true; }

 private:
  bool asks() const { return comm().rank() % 2 == 0 && comm().size() > 1; }

  /// Returns the bytes that it sent.
  std::int64_t ask(std::int64_t step) {
    const auto rank = static_cast<std::uint64_t>(comm().rank());
    const auto answering = static_cast<std::uint64_t>(comm().size() / 2);
    const int other =
        1 + 2 * static_cast<int>(RandomStream(seed(), Purpose::gossip, rank, static_cast<std::uint64_t>(step)).below(answering));
    at::Tensor replica = parameters();
    const std::int64_t length = replica.numel();
    question_.narrow(0, 0, length).copy_(replica);
    own_->run(comm::send(question_, other, kQuestion));
    own_->run(comm::receive(answer_, other, kAnswer));
    replica.add_(answer_).mul_(0.5);
    return length * 4;
  }

  void take_changes() {
    const std::lock_guard lock(mutex_);
    at::Tensor replica = parameters();
    replica.add_(change_);
    change_.zero_();
    published_.copy_(replica);
  }

  void say_farewell() {
    question_[question_.numel() - 1] = kLastQuestion;
    for (int other = 1; other < comm().size(); other += 2) own_->run(comm::send(question_, other, kQuestion));
  }

  /// A question that is expected from one of the asking workers.
  struct Expected {
    int from = 0;
    at::Tensor question;          // [length + 1]
    data_parallel::Pending work;  // declared after its memory, so that it is destroyed first
  };

  void answer_questions() {
    const std::int64_t length = answer_.numel();
    const auto expect = [&](Expected& next) {
      next.work = data_parallel::Pending(own_->start(comm::receive(next.question, next.from, kQuestion, {.deadline = comm::kUntilTheEnd})));
    };
    try {
      std::vector<Expected> expected;
      for (int from = 0; from < comm().size(); from += 2) expected.push_back({from, at::empty({length + 1}, answer_.options()), {}});
      for (Expected& next : expected) expect(next);
      while (!expected.empty()) {
        const auto there = std::ranges::find_if(expected, [](const Expected& next) { return next.work.done(); });
        if (there == expected.end()) {
          std::this_thread::sleep_for(kPatience);
          continue;
        }
        there->work.wait();
        if (there->question[length].item<float>() == kLastQuestion) {
          expected.erase(there);
          continue;
        }
        {
          const std::lock_guard lock(mutex_);
          at::add_out(answer_, published_, change_);
          change_.add_(there->question.narrow(0, 0, length).sub(answer_), 0.5);
        }
        own_->run(comm::send(answer_, there->from, kAnswer));
        expect(*there);
      }
    } catch (const std::exception& problem) {
      log::debug("ad_psgd: worker {} no longer answers: {}", comm().rank(), problem.what());
    }
  }

  std::unique_ptr<comm::Communicator> own_;
  at::Tensor question_, answer_;  // [length + 1], [length]
  std::mutex mutex_;
  at::Tensor published_, change_;  // [length]: the replica as the last step left it, and the sum of the changes since then
  std::thread answering_;
};

/// The step program of an asking worker: the answer arrives after the question has been sent. Answering happens in another thread and is
/// not shown. The worker that is asked changes from step to step; here, each worker sends to one neighbour and receives from another.
void write_question(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  using schedule::Action;
  const auto bytes = static_cast<double>(settings.storage_bytes);
  writer.message(Action::Lane::compute, Action::Exchange::send, Action::Axis::data, 1, kQuestion, elements + 1, bytes);
  writer.message(Action::Lane::compute, Action::Exchange::receive, Action::Axis::data, -1, kQuestion, elements, bytes);
}

}  // namespace

std::unique_ptr<step::Strategy> make_ad_psgd(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(config, context,
                                    std::make_unique<AdPsgd>(meeting_setup(config, context, "workers exchange messages in host memory")));
}

std::vector<schedule::Program> ad_psgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_question);
}

}  // namespace paceline::strategies

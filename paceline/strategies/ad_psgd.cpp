// Asynchronous decentralised parallel SGD (Lian et al., 2018): every worker trains at its own pace, and after each step averages with one
// random neighbour, without waiting for anybody else.
//
// Workers of even rank ask, those of odd rank answer, so that two never wait for each other. Who asks sends his replica and gets the
// other's back; both move by half of the difference. A thread of the answering worker speaks for it at any time, from the copy of the
// replica that the last step left; the worker takes the changes over between two steps, so that no pass ever sees half a change.
//   asking: d = (x_i − x_j)/2, x_i ← x_i − d;   answering, between its steps: x_j ← x_j + d
// The sum of all replicas is kept, whatever the order. That order is the machine's: runs do not repeat bit for bit.
#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "paceline/base/log.h"
#include "paceline/base/random.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/pending.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

constexpr int kQuestion = 0, kAnswer = 1;                  // tags
constexpr auto kPatience = std::chrono::microseconds(50);  // between two looks for a question
constexpr float kLastQuestion = 1;                         // in the last element of a question: the last one

class AdPsgd final : public Replicas {
 public:
  AdPsgd(const StrategyConfig& config, const step::Context& context)
      : Replicas(config, context, "workers exchange messages in host memory") {
    prepare();
  }

  ~AdPsgd() override {
    try {
      if (comm_ && asks()) say_farewell();
      if (answering_.joinable()) answering_.join();
    } catch (const std::exception& problem) {
      log::debug("ad_psgd: {}", problem.what());
      if (answering_.joinable()) answering_.join();
    }
  }

  bool lockstep() const override { return false; }

  // Nobody may ask a worker that has not loaded yet.
  void load(std::span<const step::NamedTensor> state) override {
    Replicas::load(state);
    if (published_.defined()) {
      const std::lock_guard lock(mutex_);
      published_.copy_(parameters());
    }
    context().comm.run(comm::barrier());
  }

 private:
  bool asks() { return context().rank() % 2 == 0 && context().workers() > 1; }

  void prepare() final {
    if (context().workers() == 1) return;
    if (!comm_) {
      comm_ = context().comm.split(0, context().rank());  // of its own: questions come at any time
      const auto allocate = data_parallel::allocate_from(context().comm);
      question_ = allocate(parameters().numel() + 1, parameters().options());
      answer_ = allocate(parameters().numel(), parameters().options());
    }
    const std::lock_guard lock(mutex_);
    published_ = parameters().clone();
    change_ = at::zeros_like(published_);
    if (!asks() && !answering_.joinable()) answering_ = std::thread([this] { answer_questions(); });
  }

  void meet(const step::Point& point) override {
    if (context().workers() == 1) return;
    if (asks()) ask(point.step);
    else take_changes();
  }

  void ask(std::int64_t step) {
    const auto rank = static_cast<std::uint64_t>(context().rank());
    const auto answering = static_cast<std::uint64_t>(context().workers() / 2);
    const int other =
        1 + 2 * static_cast<int>(RandomStream(context().seed, Purpose::gossip, rank, static_cast<std::uint64_t>(step)).below(answering));
    at::Tensor replica = parameters();
    const std::int64_t length = replica.numel();
    question_.narrow(0, 0, length).copy_(replica);
    comm_->run(comm::send(data_parallel::buffer_of(question_, 0, length + 1), other, kQuestion));
    comm_->run(comm::receive(data_parallel::buffer_of(answer_, 0, length), other, kAnswer));
    replica.add_(answer_).mul_(0.5);
    count_bytes(length * 4);
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
    for (int other = 1; other < context().workers(); other += 2)
      comm_->run(comm::send(data_parallel::buffer_of(question_, 0, question_.numel()), other, kQuestion));
  }

  /// A question that is expected from one of those who ask.
  struct Expected {
    int from = 0;
    at::Tensor question;          // [length + 1]
    data_parallel::Pending work;  // after its memory: it goes first
  };

  void answer_questions() {
    const std::int64_t length = answer_.numel();
    const auto expect = [&](Expected& next) {
      next.work = data_parallel::Pending(comm_->start(
          comm::receive(data_parallel::buffer_of(next.question, 0, length + 1), next.from, kQuestion, {.deadline = comm::kUntilTheEnd})));
    };
    try {
      std::vector<Expected> expected;
      for (int from = 0; from < context().workers(); from += 2) expected.push_back({from, at::empty({length + 1}, answer_.options()), {}});
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
        comm_->run(comm::send(data_parallel::buffer_of(answer_, 0, length), there->from, kAnswer));
        expect(*there);
      }
    } catch (const std::exception& problem) {
      log::debug("ad_psgd: worker {} answers no more: {}", context().rank(), problem.what());
    }
  }

  // The answers of others may still change this worker: all meet first, so that no question is under way.
  void agree_on_parameters() override {
    context().comm.run(comm::barrier());
    {
      const std::lock_guard lock(mutex_);
      if (change_.defined()) at::Tensor(parameters()).add_(change_);
    }
    average(parameters());
  }

  std::vector<step::NamedTensor> memory() override {
    if (!change_.defined()) return {};
    return {{"change", change_}};
  }
  bool remembers_replica() const override { return true; }

  std::unique_ptr<comm::Communicator> comm_;
  at::Tensor question_, answer_;  // [length + 1], [length]
  std::mutex mutex_;
  at::Tensor published_, change_;  // [length]: the replica as the last step left it, and what answers have changed since
  std::thread answering_;
};

}  // namespace

std::unique_ptr<step::Strategy> make_ad_psgd(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<AdPsgd>(config, context);
}

}  // namespace paceline::strategies

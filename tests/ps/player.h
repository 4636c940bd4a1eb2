// A server, and a script of events that it goes through: "ABaAb" is worker 0 pulls, worker 1 pulls, worker 0 pushes, pulls again, and
// worker 1 pushes a gradient that is one update old.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "paceline/base/random.h"
#include "paceline/optim/parallel.h"
#include "paceline/ps/server.h"

namespace paceline::ps {

using Floats = std::vector<float>;

/// 14 updates of three workers, 0 to 4 updates old.
inline constexpr std::string_view kScript = "ABCaAaAbBacCAcCbaBAbcaCABbac";

inline int worker_of(char letter) { return std::tolower(letter) - 'a'; }
inline bool pulls(char letter) { return std::isupper(letter); }

/// Tensors of odd lengths with gaps between them, some of several blocks, some exempt from decay; just enough for two threads.
inline const std::vector<optim::Segment> kTensors = {{3, 5, true},        {8, 4'095, false},      {4'103, 1, true},    {4'111, 8'197, true},
                                                     {12'308, 64, false}, {12'372, 20'483, true}, {32'860, 129, false}};
inline const std::size_t kLength = 32'991;
static_assert(2 * optim::kElementsPerThread < 32'974);

/// An arena of values away from 0, so that neither tiny steps nor cancellation magnify what floats round away. Each is drawn once.
inline const Floats& drawn(std::uint64_t number) {
  static std::map<std::uint64_t, Floats> all;
  Floats& values = all[number];
  if (!values.empty()) return values;
  values.resize(kLength);
  RandomStream random(11, Purpose::test, number);
  for (float& value : values) {
    value = random.uniform(-1, 1);
    value += value < 0 ? -0.5f : 0.5f;
  }
  return values;
}

inline const Floats& first_weights() { return drawn(1'000'000); }

/// What differs from event to event.
inline float rate_at(std::uint64_t event) { return 0.1f - 0.001f * static_cast<float>(event); }
inline double loss_at(std::uint64_t event) { return 0.6 / (1 + 0.1 * static_cast<double>(event)); }

class Player {
 public:
  Player(const PsConfig& ps, const optim::OptimConfig& optim, int workers = 3, std::int64_t begin = 0, std::int64_t end = -1)
      : begin_(begin) {
    Server::Setup setup;
    setup.segments = kTensors;
    setup.length = static_cast<std::int64_t>(kLength);
    setup.begin = begin, setup.end = end < 0 ? setup.length : end;
    setup.workers = workers;
    setup.seed = 5;
    server_ = std::make_unique<Server>(ps, optim, setup);
    std::copy_n(first_weights().begin() + begin, server_->length(), server_->parameters());
    pulled_.resize(static_cast<std::size_t>(server_->length()));
  }

  /// Goes on with the events of `script`; each has the gradient, the rate and the loss of its number.
  void play(std::string_view script) {
    for (const char letter : script) {
      const int worker = worker_of(letter);
      const float rate = rate_at(event_);
      if (pulls(letter)) {
        ASSERT_TRUE(server_->may_pull(worker)) << letter << " as event " << event_;
        server_->pull(worker, pulled_.data(), rate);
      } else {
        Push push{.rate = rate, .loss = loss_at(event_)};
        if (server_->rule().needs().advises) push.scale = report(worker);
        scale_ = push.scale;
        pushed_ = gradient();
        verdicts_.push_back(server_->push(worker, pushed_.data(), push));
      }
      ++event_;
    }
  }

  Server& server() { return *server_; }
  Floats parameters() const { return {server_->parameters(), server_->parameters() + server_->length()}; }
  const Floats& pulled() const { return pulled_; }  // by the last pull
  const Floats& pushed() const { return pushed_; }  // what the last push left
  float scale() const { return scale_; }            // that the last push was advised
  const std::vector<Admission>& admissions() const { return verdicts_; }
  std::uint64_t event() const { return event_; }
  Floats gradient() const {  // of the next push, the part of this server
    const auto from = drawn(event_).begin() + begin_;
    return {from, from + server_->length()};
  }

  /// As a checkpoint does it: all that this server has goes to another one, which goes on at the same event.
  void hand_over_to(Player& other) {
    std::ranges::copy(parameters(), other.server_->parameters());
    other.server_->load(server_->numbers(), server_->rule_state(), Server::InProgress::present);
    for (const Server::Array& to : other.server_->arrays())
      for (const Server::Array& from : server_->arrays())
        if (from.name == to.name) std::copy_n(from.data, from.count, to.data);
    other.event_ = event_;
  }

 private:
  float report(int worker) {
    const auto t = static_cast<double>(event_ % 5);
    return static_cast<float>(server_->report(worker, {.loss = loss_at(event_), .t_comm_s = 1 + t, .t_comp_s = 2 + t}, nullptr).scale);
  }

  std::int64_t begin_;
  std::unique_ptr<Server> server_;
  Floats pulled_, pushed_;
  float scale_ = 1;
  std::vector<Admission> verdicts_;
  std::uint64_t event_ = 0;
};

}  // namespace paceline::ps

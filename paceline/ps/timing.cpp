// Drawn durations. The stream of (seed, worker, iteration) first decides on the pause, then draws the time to compute, then those of the
// messages: in this order, so that the pauses of a run do not depend on its distribution and `straggle` finds the same ones, and neither
// depends on the network.
#include "paceline/ps/timing.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "paceline/base/random.h"
#include "paceline/base/registry.h"
#include "paceline/ps/timing_trace.h"

namespace paceline::ps {
namespace {

/// Any settings within their ranges give durations that a clock can add up without overflow.
Nanoseconds from_ms(double ms) {
  const double ns = ms * 1e6;
  return ns < static_cast<double>(kLongest.count()) ? Nanoseconds(std::llround(ns)) : kLongest;
}

struct Form {
  double shape = 0, tail = 0;
};

// A `share` draws a duration as a multiple of its mean.
using Share = double (*)(const Form&, RandomStream&);

double constant(const Form&, RandomStream&) { return 1; }

// Gamma(shape, 1): Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). A cube of a normal variable, accepted with
// a probability above 95%. Below shape 1: Gamma(shape + 1) × U^(1/shape).
double standard_gamma(double shape, RandomStream& stream) {
  if (shape < 1) {
    const double larger = standard_gamma(shape + 1, stream);
    return larger * std::pow(1 - stream.uniform_double(), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = stream.normal();
    const double v = std::pow(1 + c * x, 3);
    const double log_u = std::log(1 - stream.uniform_double());
    if (v > 0 && log_u < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

double gamma(const Form& form, RandomStream& stream) { return standard_gamma(form.shape, stream) / form.shape; }

double exponential_tail(const Form& form, RandomStream& stream) {
  return 1 - form.tail - form.tail * std::log(1 - stream.uniform_double());
}

// Distributions of an iteration's compute time. The drawn ones also apply to message times, with parameters of their own.
constexpr Entry<Share> kDistributions[] = {
    {"constant", "always the mean", constant},
    {"gamma", "gamma-distributed around the mean: the larger `shape`, the less variation", gamma},
    {"exponential_tail", "constant, except for a share `tail` of the mean that is exponentially distributed", exponential_tail},
    {"durations", "the durations that an earlier run recorded in the file `trace`, for each worker in their order", nullptr},
    {"trace", "replays the run in the file `trace`: the same visits in the same order, on the same minibatches", nullptr},
};

/// Null for a recorded run.
Share share_of(std::string_view setting, std::string_view distribution) {
  return find(std::span<const Entry<Share>>(kDistributions), setting, distribution).make;
}

bool is_among(const std::vector<std::int64_t>& numbers, int number) { return std::ranges::find(numbers, number) != numbers.end(); }

/// The worker's slow-down factor.
double factor_of(const TimingConfig& config, int workers, int worker) {
  const int number = worker % workers;
  const double place = workers > 1 ? static_cast<double>(number) / (workers - 1) : 0;
  return (is_among(config.slow_workers, number) ? config.slow_factor : 1) * (1 + config.spread * place);
}

/// The first draws of an iteration's stream.
double pause_ms_of(const TimingConfig& config, RandomStream& stream) {
  const bool pauses = stream.uniform_double() < config.pause_probability;
  const double length = config.pause_distribution == "exponential" ? -std::log(1 - stream.uniform_double()) : 1;
  return pauses ? config.pause_ms * length : 0;
}

RandomStream stream_of(std::uint64_t seed, int worker, std::int64_t iteration) {
  return {seed, Purpose::delay, static_cast<std::uint64_t>(worker), static_cast<std::uint64_t>(iteration)};
}

class Drawn final : public Timing {
 public:
  Drawn(const TimingConfig& config, Share share, int workers, std::uint64_t seed)
      : config_(config),
        share_(share),
        network_share_(share_of("timing.network_distribution", config.network_distribution)),
        workers_(workers),
        seed_(seed) {}

  Iteration draw(int worker, std::int64_t iteration, std::int64_t bytes) const override {
    RandomStream stream = stream_of(seed_, worker, iteration);
    const double pause_ms = pause_ms_of(config_, stream);
    const Form form{config_.shape, config_.tail}, network_form{config_.network_shape, config_.network_tail};
    const double compute_ms = config_.compute_ms * share_(form, stream) * factor_of(config_, workers_, worker) + pause_ms;
    const Nanoseconds compute = from_ms(compute_ms), forward = from_ms(config_.forward_share * compute_ms);
    const double link = !config_.transfers ? 0 : is_among(config_.slow_links, worker % workers_) ? config_.slow_link_factor : 1;
    const auto message = [&](double mean_ms) { return from_ms(mean_ms * link * network_share_(network_form, stream)); };
    const double transfer_ms = config_.latency_ms + static_cast<double>(bytes) / (config_.bandwidth_mb_per_s * 1e3);
    const Nanoseconds pull = message(transfer_ms), report = message(config_.latency_ms), push = message(transfer_ms);
    return {.pull = pull, .forward = forward, .report = report, .backward = compute - forward, .push = push};
  }

 private:
  TimingConfig config_;
  Share share_, network_share_;
  int workers_;
  std::uint64_t seed_;
};

}  // namespace

void TimingConfig::describe(Section& section) {
  std::vector<std::string_view> distributions, drawn;
  for (const auto& row : kDistributions) {
    distributions.push_back(row.key);
    if (row.make) drawn.push_back(row.key);
  }
  section.field("distribution", distribution, "distribution of the time of an iteration").one_of(distributions);
  section.field("compute_ms", compute_ms, "mean time of a forward and backward pass").at_least(0);
  section.field("forward_share", forward_share, "share of compute_ms before the loss is known").at_least(0).at_most(1);
  section.field("shape", shape, "gamma: shape; the standard deviation is mean / √shape").at_least(0.01);
  section.field("tail", tail, "exponential_tail: share of compute_ms that is exponentially distributed").at_least(0).at_most(1);
  section.field("latency_ms", latency_ms, "latency of a message: the time of an empty one").at_least(0);
  section.field("predictor_ms", predictor_ms, "virtual: time of lc_asgd's predictors per report").at_least(0);
  section.field("bandwidth_mb_per_s", bandwidth_mb_per_s, "bandwidth of a worker's link to the server, in 10⁶ bytes per second").above(0);
  section
      .field("network_distribution", network_distribution,
             "virtual: distribution of the time of a message; latency and bandwidth give its mean")
      .one_of(drawn);
  section.field("network_shape", network_shape, "network_distribution=gamma: shape").at_least(0.01);
  section
      .field("network_tail", network_tail,
             "network_distribution=exponential_tail: share of a message's time that is exponentially distributed")
      .at_least(0)
      .at_most(1);
  section.field("slow_links", slow_links, "virtual: indices of the workers whose messages are slow").at_least(0);
  section.field("slow_link_factor", slow_link_factor, "factor by which messages over a slow link take longer").at_least(1);
  section.field("transfers", transfers, "virtual: whether messages take time; false where a single worker holds the parameters itself");
  section.field("trace", trace, "distribution=durations or trace: the file that an earlier run recorded");
  section.field("record", record, "ps.executor=threads: record the run in this file, for distribution=durations and trace");
  section.field("slow_workers", slow_workers, "indices of the slow workers").at_least(0);
  section.field("slow_factor", slow_factor, "factor by which a slow worker takes longer").at_least(1);
  section.field("spread", spread, "the last worker takes 1 + spread times as long as the first; the others are spaced evenly between them")
      .at_least(0);
  section.field("pause_probability", pause_probability, "probability that a worker pauses in an iteration").at_least(0).at_most(1);
  section.field("pause_ms", pause_ms, "mean duration of a pause").at_least(0);
  section.field("pause_distribution", pause_distribution, "whether all pauses have the same duration, or are exponentially distributed")
      .one_of({"constant", "exponential"});
}

void validate(const TimingConfig& config, int workers) {
  // `describe` alone has the ranges, so a copy is assigned its own values to check them.
  TimingConfig copy = config;
  Config checker;
  checker.bind("timing", "", copy);
  for (const Field& field : checker.sections().front().fields()) checker.set(fmt::format("timing.{}={}", field.key(), field.toml()));

  if (workers < 1) throw ConfigError(fmt::format("timing needs at least 1 worker, not {}", workers));
  const auto check = [&](const char* key, const std::vector<std::int64_t>& numbers) {
    for (const std::int64_t number : numbers)
      if (number >= workers)
        throw ConfigError(fmt::format("timing.{}: there is no worker {}; the {} of this run are numbered from 0", key, number, workers));
  };
  check("slow_workers", config.slow_workers), check("slow_links", config.slow_links);
  if (!config.recorded()) return;
  if (config.trace.empty())
    throw ConfigError(fmt::format("timing.distribution={} needs the file of an earlier run: set timing.trace", config.distribution));
  if (!config.slow_workers.empty() || config.spread > 0 || config.pause_probability > 0 || config.varies_network())
    throw ConfigError(
        fmt::format("timing.distribution={} replays a recorded run unchanged: leave out slow_workers, spread, pause_probability, "
                    "slow_links, network_distribution and transfers, or choose another distribution",
                    config.distribution));
}

std::unique_ptr<Timing> make_timing(const TimingConfig& config, int workers, std::uint64_t seed) {
  validate(config, workers);
  const Share share = share_of("timing.distribution", config.distribution);
  if (!share) return replayed(config, workers);
  return std::make_unique<Drawn>(config, share, workers, seed);
}

Nanoseconds straggle(const TimingConfig& config, int workers, std::uint64_t seed, int worker, std::int64_t iteration,
                     Nanoseconds computed) {
  RandomStream stream = stream_of(seed, worker, iteration);
  const double excess = factor_of(config, workers, worker) - 1;
  return from_ms(excess * seconds(computed) * 1e3 + pause_ms_of(config, stream));
}

}  // namespace paceline::ps

// What a report costs the server of LC-ASGD on one core: both predictors learn and forecast, each of so many workers in turn.
//
// Columns are medians. Warm: report after report, so that the weights stay in the cache. Cold: between two reports the server's memory is
// swept, as it is when a gradient of a large model is applied. The slides' times are those of a V100 (their table of overheads).
#include <cmath>

#include "benchmark.h"
#include "paceline/base/random.h"
#include "paceline/ps/predictors/lstm_predictors.h"

namespace paceline::bench {
namespace {

constexpr int kReports = 500;               // of one round
constexpr std::size_t kSwept = 16u << 20u;  // floats: past any cache that a core has to itself

/// Both predictors, and a made-up run: losses that fall, workers that come in turn and take about 100 ms.
class Server {
 public:
  explicit Server(int workers) : workers_(workers), loss_({}, 1), step_({}, workers, 1) {}

  double predict_loss(bool wants_derivative) {
    const double loss = 0.1 + 2 * std::exp(-1e-3 * reports_) * (1 + 0.1 * random_.normal());
    return seconds_of([&] { loss_.observe(loss, workers_, wants_derivative); });
  }

  double predict_steps() {
    const int worker = reports_++ % workers_;
    const double t_comm = 1e-3 * (1 + random_.uniform()), t_comp = 0.1 * (1 + 0.1 * random_.uniform());
    return seconds_of([&] { step_.observe(worker, workers_, t_comm, t_comp); });
  }

 private:
  template <class Work>
  double seconds_of(const Work& work) {
    const Nanoseconds began = clock_.now();
    work();
    return seconds(clock_.now() - began);
  }

  SteadyClock clock_;
  RandomStream random_{1, Purpose::data};
  int workers_, reports_ = 0;
  ps::LstmLosses loss_;
  ps::LstmSteps step_;
};

}  // namespace

std::vector<Row> bench_predictors(const Options& options, const Say& say) {
  struct Slides {
    int workers;
    double total_ms;
  };
  std::vector<float> memory(kSwept, 1.0f);
  std::vector<Row> rows;
  for (const Slides& slides : {Slides{4, 1.28 + 1.37}, Slides{8, 1.29 + 1.43}, Slides{16, 1.30 + 1.48}}) {
    say(std::to_string(slides.workers) + " workers");
    Server server(slides.workers);
    std::vector<double> loss, derivative, step, total, cold;
    for (int report = 0; report < options.rounds * kReports; ++report) {
      loss.push_back(server.predict_loss(false));
      step.push_back(server.predict_steps());
      total.push_back(loss.back() + step.back());
      derivative.push_back(server.predict_loss(true));
    }
    for (int report = 0; report < options.rounds * 10; ++report) {
      for (float& value : memory) value += 1;
      cold.push_back(server.predict_loss(false) + server.predict_steps());
    }
    rows.push_back({{"steps_ahead", slides.workers},
                    {"loss_us", 1e6 * median(loss)},
                    {"loss_with_derivative_us", 1e6 * median(derivative)},
                    {"step_us", 1e6 * median(step)},
                    {"total_ms", 1e3 * median(total)},
                    {"total_cold_ms", 1e3 * median(cold)},
                    {"slides_ms", slides.total_ms}});
  }
  return rows;
}

}  // namespace paceline::bench

#include "paceline/observe/predictor_log.h"

#include <fmt/format.h>

#include "paceline/base/files.h"

namespace paceline::observe {

void PredictorLog::on(const Event& event) {
  const auto* end = std::get_if<RunEnded>(&event);
  if (!end || !end->served || end->served->actual_loss.empty()) return;
  const Served& s = *end->served;
  std::string text = "report,predicted_loss,actual_loss,predicted_steps,actual_steps,worker,steps_ahead,delay_loss,scale\n";
  for (std::size_t i = 0; i < s.actual_loss.size(); ++i)  // steps are NaN at a worker's first visit
    text += fmt::format("{},{:.6g},{:.6g},{:.6g},{:.6g},{:g},{:g},{:.6g},{:.6g}\n", i + 1, s.predicted_loss[i], s.actual_loss[i],
                        s.predicted_steps[i], s.actual_steps[i], s.worker[i], s.steps_ahead[i], s.delay_loss[i], s.scale[i]);
  write_atomically(file_, text);
}

}  // namespace paceline::observe

#include "paceline/observe/predictions.h"

#include <fmt/format.h>

#include "paceline/base/files.h"

namespace paceline::observe {

void Predictions::on(const Event& event) {
  const auto* end = std::get_if<RunEnded>(&event);
  if (!end || !end->served || end->served->actual_loss.empty()) return;
  const Served& served = *end->served;
  std::string text = "report,predicted_loss,actual_loss,predicted_steps,actual_steps\n";
  for (std::size_t i = 0; i < served.actual_loss.size(); ++i)
    text +=
        fmt::format("{},{:.6g},{:.6g},{:.6g},{:.6g}\n", i + 1, served.predicted_loss[i], served.actual_loss[i], served.predicted_steps[i],
                    served.actual_steps[i]);  // steps are nan at a worker's first visit
  write_atomically(file_, text);
}

}  // namespace paceline::observe

// predictions.csv: one line per report with what the predictors of lc_asgd predicted, what was observed, and the answer that the worker
// got. Written at the end of the run, unless it is empty.
#pragma once

#include <filesystem>

#include "paceline/observe/event.h"

namespace paceline::observe {

class PredictorLog final : public Listener {
 public:
  explicit PredictorLog(std::filesystem::path file) : file_(std::move(file)) {}
  void on(const Event& event) override;

 private:
  std::filesystem::path file_;
};

}  // namespace paceline::observe

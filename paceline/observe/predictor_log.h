// predictions.csv: one line per report with what the predictors of lc_asgd said, what came, and what the worker was answered. Written at
// the end, if there is anything.
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

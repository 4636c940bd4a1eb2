// predictions.csv: predicted and actual values of lc_asgd's predictors, one line per report. Written at the end, if there are any.
#pragma once

#include <filesystem>

#include "paceline/observe/event.h"

namespace paceline::observe {

class Predictions final : public Listener {
 public:
  explicit Predictions(std::filesystem::path file) : file_(std::move(file)) {}
  void on(const Event& event) override;

 private:
  std::filesystem::path file_;
};

}  // namespace paceline::observe

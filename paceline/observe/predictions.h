// predictions.csv: what the predictors of lc_asgd said and what came, a line for each report. Written at the end, where there is anything.
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

// summary.json: how a run ended, for scripts and for comparing runs. Written in one piece, at the end.
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "paceline/observe/event.h"

namespace paceline::observe {

/// The final numbers; also what `paceline train --json` prints. A number that was not measured is null.
nlohmann::ordered_json to_json(const RunEnded& end);

/// Predictions next to the corresponding measurements: "step_s", "exposed_s" and so on; then the relative error of the step's prediction.
nlohmann::ordered_json to_json(const Prediction& prediction, const RunEnded& end);

/// The final numbers and what was trained: network, dataset, batch and so on; and the prediction, if there was one.
nlohmann::ordered_json to_json(const RunEnded& end, const RunStarted& start);

class Summary final : public Listener {
 public:
  explicit Summary(std::filesystem::path file) : file_(std::move(file)) {}
  void on(const Event& event) override;

 private:
  std::filesystem::path file_;
  RunStarted start_;
};

}  // namespace paceline::observe

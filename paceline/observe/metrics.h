// metrics.jsonl: one JSON object a line for every step, epoch, evaluation and checkpoint, for scripts. "event" says which; a number
// that was not measured is null.
#pragma once

#include <filesystem>

#include "paceline/observe/event.h"
#include "paceline/observe/output_file.h"

namespace paceline::observe {

class MetricsLog final : public Listener {
 public:
  MetricsLog(const std::filesystem::path& file, const Clock& clock) : out_(file, clock) {}
  void on(const Event& event) override;

 private:
  OutputFile out_;
};

}  // namespace paceline::observe

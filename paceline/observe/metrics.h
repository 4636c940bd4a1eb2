// metrics.jsonl: one JSON object per line for every step, epoch, evaluation and checkpoint, for scripts. "event" says which; a number
// that was not measured is null.
//
// A resumed run continues the record from where it resumes: later steps are dropped, and an evaluation that is repeated replaces the
// earlier one, so that every line is there once.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "paceline/observe/event.h"
#include "paceline/observe/output_file.h"

namespace paceline::observe {

class MetricsLog final : public Listener {
 public:
  /// The clock must outlive the listener. Throws ConfigError if the file cannot be opened.
  MetricsLog(std::filesystem::path file, const Clock& clock) : file_(std::move(file)), clock_(clock) { out_.emplace(file_, clock_); }
  void on(const Event& event) override;

 private:
  void keep_those(const std::function<bool(const nlohmann::ordered_json& line)>& wanted);

  std::filesystem::path file_;
  const Clock& clock_;
  std::optional<OutputFile> out_;
  std::int64_t first_step_ = -1;
};

/// The steps and evaluations in such a file, in order. Empty if there is no file.
std::vector<Event> read_events(const std::filesystem::path& file);

}  // namespace paceline::observe

// trace.json: the spans of a run in Chrome's trace format, which ui.perfetto.dev opens. pid = rank, tid = lane of that rank.
//
// The file is valid JSON after every flush: each block of spans overwrites the two closing brackets of the block before it, and writes
// its own. Even a run that was killed leaves a trace that can be loaded.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "paceline/base/descriptor.h"
#include "paceline/observe/event.h"

namespace paceline::observe {

class Trace final : public Listener {
 public:
  /// Truncates the file and asks the bus for spans. Throws ConfigError if the file cannot be written.
  Trace(std::filesystem::path file, Bus& bus);
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void on(const Event& event) override;

 private:
  void add(const std::string& event);
  int lane_of(const Span& span);
  void flush();

  std::filesystem::path file_;
  Descriptor out_;
  std::string pending_;
  std::int64_t end_ = 0;  // offset of the closing brackets
  bool empty_ = true;
  std::map<int, std::map<std::string, int>> lanes_;  // of each rank, in order of appearance
};

}  // namespace paceline::observe

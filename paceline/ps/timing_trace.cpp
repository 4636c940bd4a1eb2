// The file of a recorded run: text, so that it can be looked at, plotted and written by other programs. For example
//
//   # paceline timing of 2 workers
//   worker,iteration,pull_ns,forward_ns,report_ns,backward_ns,push_ns,minibatch,pull,report,push
//   0,0,1200000,33000000,100000,67000000,1200000,0,1,3,5
//   1,0,1200000,35120000,100000,70100000,1200000,1,2,4,8
//   0,1,1200000,32960000,100000,66700000,1200000,2,6,7,9
//
// The last four columns are the order of the run (struct Visit); a file of durations alone ends with push_ns.
//
// The workers' lines are in order of arrival; the iterations of one worker are consecutive, starting at any number. Every worker has at
// least one, and every line ends with a line feed, so that a truncated file is detected. A run that is longer than the recording starts
// over with its durations; in an exact replay, it ends with an error.
#include "paceline/ps/timing_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/log.h"

namespace paceline::ps {
namespace {

constexpr std::string_view kTitle = "# paceline timing of ", kTitleEnd = " workers";
constexpr std::string_view kDurations = "worker,iteration,pull_ns,forward_ns,report_ns,backward_ns,push_ns";
constexpr std::string_view kOrder = ",minibatch,pull,report,push";
constexpr std::size_t kDurationCells = 7, kAllCells = 11;

bool parse(std::string_view text, std::int64_t& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc{} && end == text.data() + text.size();
}

/// A worker's recorded iterations, the last of them with number `last`.
struct Recording {
  std::int64_t last = 0;
  std::vector<Iteration> iterations;
  std::vector<Visit> visits;  // as many, or none
};

class TraceReader {
 public:
  explicit TraceReader(const std::string& file) : file_(file), text_(paceline::read_file(file)), rest_(text_) {}

  std::vector<Recording> read() {
    const std::string_view title = next_line();
    std::int64_t workers = 0;
    const bool framed = title.starts_with(kTitle) && title.ends_with(kTitleEnd) && title.size() > kTitle.size() + kTitleEnd.size();
    if (!framed || !parse(title.substr(kTitle.size(), title.size() - kTitle.size() - kTitleEnd.size()), workers) || workers < 1 ||
        workers > kMostWorkers)
      refuse(fmt::format("expected '{}N{}'; name a file that a run recorded with timing.record", kTitle, kTitleEnd));
    const std::string_view columns = next_line();
    if (columns != kDurations && columns != std::string(kDurations) + std::string(kOrder))
      refuse(fmt::format("expected the columns '{}', optionally followed by '{}'", kDurations, kOrder));
    cells_ = columns == kDurations ? kDurationCells : kAllCells;
    if (workers > std::ssize(rest_)) refuse(fmt::format("{} workers in {} bytes; record a longer run", workers, rest_.size()));
    std::vector<Recording> recordings(static_cast<std::size_t>(workers));
    while (!rest_.empty()) read_iteration(recordings);
    for (std::size_t worker = 0; worker < recordings.size(); ++worker)
      if (recordings[worker].iterations.empty())
        refuse(fmt::format("the file ends without an iteration of worker {}; record a longer run", worker));
    return recordings;
  }

 private:
  static constexpr std::int64_t kMostWorkers = 1'000'000;

  [[noreturn]] void refuse(const std::string& what) const { throw DataError(file_, fmt::format("line {}: {}", line_, what)); }

  std::string_view next_line() {
    ++line_;
    const auto end = rest_.find('\n');
    if (end == std::string_view::npos) refuse("cut off; record the run again, or delete the line");
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  void read_iteration(std::vector<Recording>& recordings) {
    std::array<std::int64_t, kAllCells> cells{};
    std::string_view line = next_line();
    for (std::size_t column = 0; column < cells_; ++column) {
      const bool last = column + 1 == cells_;
      const auto comma = last ? line.size() : line.find(',');
      if (comma == std::string_view::npos || !parse(line.substr(0, comma), cells[column]) || cells[column] < 0)
        refuse(fmt::format("expected {} whole numbers of at least 0, separated by commas; column {} is not one", cells_, column + 1));
      line.remove_prefix(last ? comma : comma + 1);
    }
    const auto& [worker, iteration, pull, forward, report, backward, push, minibatch, pulled, reported, pushed] = cells;
    const auto workers = static_cast<std::int64_t>(recordings.size());
    if (worker >= workers) refuse(fmt::format("names worker {}, but the first line says {} workers", worker, workers));
    if (std::max({pull, forward, report, backward, push}) > kLongest.count()) refuse("has a duration of more than eleven days");
    Recording& recording = recordings[static_cast<std::size_t>(worker)];
    if (!recording.iterations.empty() && iteration - 1 != recording.last)
      refuse(fmt::format("iteration {} of worker {} does not follow its iteration {}", iteration, worker, recording.last));
    recording.last = iteration;
    recording.iterations.push_back(
        {Nanoseconds(pull), Nanoseconds(forward), Nanoseconds(report), Nanoseconds(backward), Nanoseconds(push)});
    if (cells_ == kAllCells) recording.visits.push_back({.minibatch = minibatch, .pulled = pulled, .reported = reported, .pushed = pushed});
  }

  std::string file_, text_;
  std::string_view rest_;
  std::int64_t line_ = 0;
  std::size_t cells_ = 0;  // of a line
};

std::vector<Recording> read(const TimingConfig& config, int workers) {
  if (!std::filesystem::is_regular_file(config.trace))
    throw ConfigError(fmt::format("timing.trace: there is no file '{}'; record one with an earlier run", config.trace));
  std::vector<Recording> recordings = TraceReader(config.trace).read();
  if (recordings.size() != static_cast<std::size_t>(workers))
    throw ConfigError(
        fmt::format("timing.trace: '{}' was recorded with {} workers, but this run has {}; use the same number, or record again",
                    config.trace, recordings.size(), workers));
  return recordings;
}

/// Whether the nonzero numbers are consecutive from `first` on, each exactly once.
bool count_on(std::vector<std::int64_t> numbers, std::int64_t first) {
  std::ranges::sort(numbers);
  for (const std::int64_t number : numbers)
    if (number != first++) return false;
  return true;
}

class Replayed final : public Timing {
 public:
  explicit Replayed(std::vector<Recording> recordings) : recordings_(std::move(recordings)) {}

  Iteration draw(int worker, std::int64_t iteration, std::int64_t) const override {
    const auto& iterations = recordings_[static_cast<std::size_t>(worker) % recordings_.size()].iterations;
    return iterations[static_cast<std::size_t>(iteration) % iterations.size()];
  }

 private:
  std::vector<Recording> recordings_;
};

}  // namespace

std::unique_ptr<Timing> replayed(const TimingConfig& config, int workers) { return std::make_unique<Replayed>(read(config, workers)); }

std::vector<std::vector<Visit>> recorded_visits(const TimingConfig& config, int workers) {
  std::vector<std::vector<Visit>> all;
  std::vector<std::int64_t> minibatches, events;
  for (Recording& recording : read(config, workers)) {
    if (recording.visits.empty())
      throw ConfigError(
          fmt::format("timing.trace: '{}' has only durations, not the order of events; use timing.distribution=durations", config.trace));
    for (const Visit& visit : recording.visits) {
      minibatches.push_back(visit.minibatch);
      for (const std::int64_t event : {visit.pulled, visit.reported, visit.pushed})
        if (event > 0) events.push_back(event);
      const bool ordered = (visit.reported == 0 || visit.pulled < visit.reported) && (visit.pushed == 0 || visit.reported < visit.pushed);
      if (!ordered)
        throw DataError(config.trace, fmt::format("minibatch {} is not pulled, reported and pushed in this order", visit.minibatch));
    }
    all.push_back(std::move(recording.visits));
  }
  const std::int64_t first = std::ranges::min(minibatches);
  if (!count_on(std::move(minibatches), first) || !count_on(std::move(events), 1))
    throw DataError(config.trace, "minibatches or events are missing or duplicated, as after a killed run; record it again");
  return all;
}

struct TimingRecorder::State {
  std::filesystem::path file;
  std::mutex mutex;
  std::ofstream out;  // buffered
};

TimingRecorder::TimingRecorder(const std::filesystem::path& file, int workers) : state_(std::make_unique<State>()) {
  state_->file = file;
  state_->out.open(file, std::ios::binary | std::ios::trunc);
  if (!state_->out)
    throw ConfigError(fmt::format("cannot record timing in '{}'; check that its folder exists and is writable", file.string()));
  state_->out << kTitle << workers << kTitleEnd << '\n' << kDurations << kOrder << '\n';
}

TimingRecorder::~TimingRecorder() {
  if (!state_->out.flush()) log::warning("{}: the recorded timing is incomplete; check whether the disk is full", state_->file.string());
}

void TimingRecorder::record(int worker, std::int64_t iteration, const Iteration& durations, const Visit& visit) {
  const auto& [pull, forward, report, backward, push] = durations;
  const std::string line =
      fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", worker, iteration, pull.count(), forward.count(), report.count(), backward.count(),
                  push.count(), visit.minibatch, visit.pulled, visit.reported, visit.pushed);
  const std::lock_guard lock(state_->mutex);
  if (!(state_->out << line)) throw DataError(state_->file.string(), "cannot record timing; check whether the disk is full");
}

}  // namespace paceline::ps

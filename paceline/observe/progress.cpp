#include "paceline/observe/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "paceline/observe/formatting.h"

namespace paceline::observe {
namespace {

/// Replaces the word if it has a value; returns whether nothing is left to be replaced.
bool fill(std::string& text, std::string_view word, const std::string& value) {
  const auto at = text.find(word);
  if (at == std::string::npos) return true;
  if (value.empty()) return false;
  text.replace(at, word.size(), value);
  return true;
}

/// Column headings of an epoch's row.
struct Column {
  const char* title;
  int width;
};
constexpr Column kClassifier[] = {{"epoch", 9},    {"train loss", 10}, {"accuracy", 8}, {"test loss", 9},
                                  {"accuracy", 8}, {"time", 8},        {"samples/s", 9}};
constexpr Column kPlain[] = {{"epoch", 9}, {"train loss", 10}, {"test loss", 9}, {"time", 8}, {"samples/s", 9}};
constexpr Column kLanguage[] = {{"epoch", 9}, {"train loss/char", 15}, {"test loss/char", 14}, {"time", 8}, {"samples/s", 9}};

/// "5.4 s: steps 79%, start 18%, evaluation 2%": the four largest parts, without those of less than a hundredth.
std::string show_wall_time(const WallTime& wall) {
  std::vector<std::pair<double, const char*>> parts = {{wall.start, "start"},
                                                       {wall.steps, "steps"},
                                                       {wall.data, "data"},
                                                       {wall.evaluation, "evaluation"},
                                                       {wall.checkpoints, "checkpoints"},
                                                       {wall.final_wait, "disk"},
                                                       {wall.rest, "rest"}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<double, const char*>::first);
  parts.resize(4);
  std::string text = show_duration(wall.total());
  const char* before = ": ";
  for (const auto& [seconds, name] : parts)
    if (seconds >= 0.01 * wall.total() && seconds > 0)
      text += fmt::format("{}{} {}", std::exchange(before, ", "), name, show_percent(seconds / wall.total(), 0));
  return text;
}

}  // namespace

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void RecentMean::add(double value) {
  constexpr double kNew = 0.1;
  if (!std::isfinite(value)) {
    value_ = value;
    weight_ = 0;
    return;
  }
  const double kept = (1 - kNew) * weight_;
  weight_ = kept + kNew;
  value_ = kept > 0 ? (kept * value_ + kNew * value) / weight_ : value;
}

Progress::Progress(Terminal terminal, const Clock& clock, ProgressOptions options)
    : terminal_(std::move(terminal)), clock_(clock), options_(std::move(options)) {
  if (terminal_.live) screen_.emplace([this](const auto& write_line) { make_room(write_line); });
}

// A run that ends with an error leaves its live line, so whatever is printed next starts below it.
Progress::~Progress() {
  screen_.reset();
  if (line_on_screen_) *terminal_.out << '\n' << std::flush;
}

void Progress::on(const Event& event) {
  const std::lock_guard lock(mutex_);
  std::visit([this](const auto& e) { see(e); }, event);
}

void Progress::see(const RunStarted& event) {
  run_ = event;
  started_ = clock_.now();
  std::vector<Row> rows;
  rows.push_back({"network", fmt::format("{}, {} parameters", event.network, show_large(static_cast<double>(event.parameters)))});
  if (event.macs > 0) rows.back().value += fmt::format(", {} MACs per sample", show_large(static_cast<double>(event.macs)));
  rows.push_back({"data", fmt::format("{}, {} training", event.dataset, show_count(event.train_samples))});
  rows.back().value += event.test_samples > 0 ? fmt::format(" and {} test samples", show_count(event.test_samples)) : " samples";
  // With a parameter server a step is a part of a batch: there are more steps than batches, so this number would mislead.
  if (const std::int64_t seen = event.steps_per_epoch * event.batch; 0 < seen && seen < event.train_samples)
    rows.push_back(
        {"", fmt::format("{} of {} per epoch; data.drop_last=false uses all", show_count(seen), show_count(event.train_samples))});
  rows.push_back({"training", fmt::format("{}, batch {}, {} of {}", event.optimizer, show_count(event.batch), plural(event.epochs, "epoch"),
                                          plural(event.steps_per_epoch, "step"))});
  const std::string over = event.engine.empty() ? "" : " over " + event.engine;
  rows.push_back({"workers", fmt::format("{} on {}, {}, {}{}", event.workers, event.device, event.precision, event.strategy, over)});
  for (const std::string& line : event.mesh) rows.push_back({&line == &event.mesh.front() ? "mesh" : "", line});
  if (const auto& expected = event.prediction)
    rows.push_back({"predicted", fmt::format("{} per step ({} to {}), most of it {}", show_moment(expected->step_s),
                                             show_moment(expected->low_s), show_moment(expected->high_s), expected->bottleneck)});
  rows.push_back({"run", event.run});
  if (event.first_step > 0)
    rows.push_back(
        {"resumes", fmt::format("after step {} of the whole run, which the lines above describe", show_count(event.first_step))});
  print(box(terminal_, "paceline", Ink::bold, rows));
}

void Progress::see(const StepDone& event) {
  if (unprinted_) print_epoch(nullptr);  // that epoch was not evaluated
  last_ = event;
  loss_.add(event.loss);
  accuracy_.add(event.accuracy);
  samples_here_ += event.samples, training_s_here_ += seconds(event.duration);
  if (event.duration > Nanoseconds(0)) samples_per_s_.add(static_cast<double>(event.samples) / seconds(event.duration));

  const Nanoseconds now = clock_.now();
  const Nanoseconds interval = terminal_.live ? options_.redraw_every : options_.line_every;
  const bool by_steps = !terminal_.live && options_.line_every_steps > 0 && event.step - drawn_step_ >= options_.line_every_steps;
  if (!drawn_ || now - *drawn_ >= interval || by_steps) draw();
}

void Progress::see(const EpochDone& event) {
  if (unprinted_) print_epoch(nullptr);
  unprinted_ = event;
  if (terminal_.live && last_.step > 0) draw();
}

void Progress::see(const Evaluated& event) {
  const auto better = [&] { return run_.shows_accuracy() ? event.accuracy > best_->accuracy : event.loss < best_->loss; };
  if (!best_ || better()) best_ = event;
  if (unprinted_ && unprinted_->epoch == event.epoch) return print_epoch(&event);
  std::string line = fmt::format("step {}: test loss {}", show_count(event.step), show_loss(event.loss));
  if (run_.shows_accuracy()) line += fmt::format(", accuracy {}", show_percent(event.accuracy, 2));
  print(line + "\n");
}

void Progress::see(const CheckpointWritten& event) {
  checkpoint_ = event.file;
  checkpoint_time_ = clock_.now();
  if (!terminal_.live)
    print(fmt::format("checkpoint {}: {} in {}\n", event.file, show_bytes(event.bytes), show_duration(seconds(event.duration))));
}

/// What was measured since the run began or was resumed.
std::vector<Row> Progress::measured_here(const RunEnded& event) const {
  std::vector<Row> rows = {{"time", show_wall_time(event.wall)}};
  if (run_.first_step == 0)
    rows.push_back({"speed", fmt::format("{} samples/s on {}", show_rate(event.samples_per_s), plural(event.workers, "worker"))});
  else if (training_s_here_ > 0)
    rows.push_back({"speed", fmt::format("{} samples/s on {}", show_rate(static_cast<double>(samples_here_) / training_s_here_),
                                         plural(event.workers, "worker"))});
  if (std::isfinite(event.step_s)) {
    rows.push_back({"step", show_moment(event.step_s)});
    if (const auto& expected = run_.prediction)
      rows.back().value +=
          fmt::format(", predicted {} ({:+.0f}%)", show_moment(expected->step_s), 100 * (expected->step_s / event.step_s - 1));
  }
  if (const auto& talk = event.communication)
    rows.push_back({"communication", fmt::format("{} exposed, {} hidden; {} per step{}", show_percent(talk->exposed, 0),
                                                 show_percent(talk->hidden, 0), show_bytes(static_cast<std::int64_t>(talk->bytes_per_step)),
                                                 talk->ratio > 1.01 ? fmt::format(" ({:.1f}× less)", talk->ratio) : "")});
  if (const auto& kept = event.checkpoints) {
    const double training_s = run_.first_step > 0 ? training_s_here_ : event.seconds;
    const double spent = kept->paused_s + kept->final_wait_s;
    rows.push_back(
        {"checkpoints", fmt::format("{} written, paused {}, at the end {} ({})", show_count(kept->written), show_duration(kept->paused_s),
                                    show_duration(kept->final_wait_s), show_percent(spent / std::max(training_s + spent, 1e-9), 1))});
  }
  return rows;
}

void Progress::see(const RunEnded& event) {
  if (unprinted_) print_epoch(nullptr);
  const bool resumed = run_.first_step > 0;
  std::vector<Row> rows;
  rows.push_back(
      {"trained", fmt::format("{}, {}, {}", plural(event.epochs, "epoch"), plural(event.steps, "step"), plural(event.samples, "sample"))});
  // A resumed run first has what is true of the whole, and at its end what only this part of it can tell.
  if (resumed) rows.back().value += fmt::format(" in {}, {} samples/s", show_duration(event.seconds), show_rate(event.samples_per_s));
  else std::ranges::move(measured_here(event), std::back_inserter(rows));
  if (event.skipped_steps > 0) rows.push_back({"left out", plural(event.skipped_steps, "step") + " whose gradients overflowed in fp16"});
  rows.push_back({"train loss", show_loss(event.train_loss)});
  if (!std::isnan(event.test_loss)) {
    rows.push_back({"test loss", show_loss(event.test_loss) + (run_.per_token ? " a character" : "")});
    if (run_.shows_accuracy() && !std::isnan(event.test_accuracy)) rows.push_back({"test accuracy", show_percent(event.test_accuracy, 2)});
    for (const Measured& metric : event.test_metrics) rows.push_back({"test " + metric.name, show_loss(metric.value)});
  }
  if (!event.views.empty() && run_.shows_accuracy()) {
    std::string views;
    for (const EvaluatedView& view : event.views)
      views += fmt::format("{}{} {}", views.empty() ? "" : ", ", view.view, show_percent(view.accuracy, 2));
    rows.push_back({"by statistics", views});
  }
  if (const auto& server = event.served) {
    rows.push_back({"server", fmt::format("{}, mean staleness {:.2f}{}", plural(server->updates, "update"), server->mean_staleness,
                                          server->dropped > 0 ? fmt::format(", {} gradients dropped", show_count(server->dropped)) : "")});
    if (!std::isnan(server->virtual_s)) rows.push_back({"virtual time", show_duration(server->virtual_s)});
  }
  std::vector<Row> last;
  if (resumed) {
    last.push_back({"resumed", fmt::format("after step {}; in the {} since then:", show_count(run_.first_step),
                                           plural(event.steps - run_.first_step, "step"))});
    std::ranges::move(measured_here(event), std::back_inserter(last));
  }
  if (best_ && best_->epoch < event.epochs)
    (resumed ? last : rows)
        .push_back(
            {"best", fmt::format("{} after epoch {}",
                                 run_.shows_accuracy() ? "accuracy " + show_percent(best_->accuracy, 2) : "loss " + show_loss(best_->loss),
                                 best_->epoch)});
  if (!event.state_hash.empty()) rows.push_back({"state", event.state_hash});
  std::ranges::move(last, std::back_inserter(rows));
  const bool done = event.stopped.empty();
  print(box(terminal_, done ? "done" : "stopped: " + event.stopped, done ? Ink::good : Ink::warn, rows));
  if (!event.run.empty()) run_.run = event.run;
  print_next(!done);
}

Standing Progress::standing() const {
  Standing s;
  s.epoch = last_.epoch;
  s.epochs = run_.epochs;
  s.run_step = last_.step;
  s.run_steps = last_.steps;
  s.steps = last_.epoch_steps;
  s.step = last_.epoch_step;
  s.loss = loss_.value();
  if (run_.shows_accuracy()) s.accuracy = accuracy_.value();
  s.samples_per_s = samples_per_s_.value();
  s.communication_share = last_.communication_share;
  s.memory_bytes = options_.memory();
  s.workers = run_.workers;
  const Nanoseconds now = clock_.now();
  if (!checkpoint_.empty()) s.checkpoint_age = seconds(now - checkpoint_time_);
  // Wall-clock time rather than the sum of the steps' durations, because evaluations and checkpoints take time too.
  const std::int64_t done = last_.step - run_.first_step;
  if (done > 0) s.seconds_left = seconds(now - started_) / static_cast<double>(done) * static_cast<double>(last_.steps - last_.step);
  return s;
}

void Progress::draw() {
  drawn_ = clock_.now();
  drawn_step_ = last_.step;
  if (!terminal_.live) return print(plain_line(standing()) + "\n");
  *terminal_.out << fmt::format("\r{}\x1b[K", live_line(standing(), terminal_)) << std::flush;
  line_on_screen_ = true;
}

void Progress::print(const std::string& permanent) {
  *terminal_.out << fmt::format("{}{}", line_on_screen_ ? "\r\x1b[K" : "", permanent) << std::flush;
  line_on_screen_ = false;
  if (terminal_.live) drawn_.reset();  // the next step draws it again
}

void Progress::make_room(const std::function<void()>& write_line) {
  const std::lock_guard lock(mutex_);
  const bool drawn = line_on_screen_;
  if (drawn) print("");
  write_line();
  if (drawn) draw();
}

void Progress::print_epoch(const Evaluated* test) {
  const EpochDone epoch = *unprinted_;
  unprinted_.reset();
  const double duration = seconds(epoch.duration);
  const std::string samples_per_s = show_rate(static_cast<double>(epoch.samples) / duration);
  if (!terminal_.live) {
    std::string line = fmt::format("epoch {}/{}: train loss {}", epoch.epoch, epoch.epochs, show_loss(epoch.train_loss));
    if (run_.shows_accuracy()) line += fmt::format(", accuracy {}", show_percent(epoch.train_accuracy, 2));
    if (test) line += fmt::format("; test loss {}", show_loss(test->loss));
    if (test && run_.shows_accuracy()) line += fmt::format(", accuracy {}", show_percent(test->accuracy, 2));
    if (test)
      for (const Measured& metric : test->metrics) line += fmt::format(", {} {}", metric.name, show_loss(metric.value));
    return print(fmt::format("{}; {}, {} samples/s\n", line, show_duration(duration), samples_per_s));
  }

  constexpr const char* kNone = "-";
  std::vector<std::string> cells = {fmt::format("{}/{}", epoch.epoch, epoch.epochs), show_loss(epoch.train_loss)};
  if (run_.shows_accuracy()) cells.push_back(show_percent(epoch.train_accuracy, 2));
  cells.push_back(test ? show_loss(test->loss) : kNone);
  if (run_.shows_accuracy()) cells.push_back(test ? show_percent(test->accuracy, 2) : kNone);
  const std::size_t judged = cells.size() - 1;  // the column by which epochs are compared
  cells.push_back(show_duration(duration));
  cells.push_back(samples_per_s);

  const auto table = run_.shows_accuracy() ? std::span<const Column>(kClassifier)
                     : run_.per_token      ? std::span<const Column>(kLanguage)
                                           : std::span<const Column>(kPlain);
  std::string header, row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string_view gap = i == 0 ? "" : "  ";
    const bool best = i == judged && test && best_ && best_->step == test->step;
    header += fmt::format("{}{}", gap, fit(table[i].title, table[i].width, Align::right));
    row += fmt::format("{}{}", gap, terminal_.ink(fit(cells[i], table[i].width, Align::right), best ? Ink::good : Ink::plain));
  }
  print((header_printed_ ? "" : terminal_.ink(header, Ink::dim) + "\n") + row + "\n");
  header_printed_ = true;
}

void Progress::print_next(bool stopped) {
  const std::string resumable = checkpoint_.empty() ? "" : run_.run;
  std::string curve = run_.run + "/curve.svg";
  if (run_.run.empty() || !options_.is_there(curve)) curve.clear();
  std::size_t width = 0;
  for (const Row& row : options_.next) width = std::max(width, row.label.size());
  std::string text;
  for (Row row : options_.next)
    if (fill(row.value, "{run}", run_.run) && fill(row.value, "{curve}", curve) && fill(row.value, "{checkpoint}", resumable) &&
        fill(row.value, "{stopped}", stopped ? resumable : "") && fill(row.value, "{last}", stopped ? checkpoint_ : ""))
      text += fmt::format("   {}  {}\n", terminal_.ink(fit(row.label, static_cast<int>(width)), Ink::dim),
                          terminal_.ink(row.value, Ink::accent));
  print(text);
}

}  // namespace paceline::observe

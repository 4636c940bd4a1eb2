#include "paceline/perf/profile_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/graph/units.h"
#include "paceline/perf/uncertainty.h"

namespace paceline::perf {

using Work = schedule::Action::Work;

ProfileTimes::ProfileTimes(const graph::Graph& graph, const ProfileTable& table, const std::string& optimizer, const Device& device,
                           const RooflineSettings& settings, std::int64_t workers)
    : table_(table), optimizer_(optimizer), local_(graph, device, settings), offload_(settings.offload) {
  const std::size_t units = graph::units_of(graph).size();
  if (table.units.size() != units)
    throw ConfigError(fmt::format("the profile has {} units, but network {} has {}; measure it with `paceline profile {}`",
                                  table.units.size(), graph.network(), units, graph.network()));
  for (const UnitProfile& unit : table.units) parameters_ += unit.parameters;
  if (!offload_) update_seconds(table_, optimizer_, 1);
  if (table.around_s.empty())
    notes_.insert("the profile has no whole steps, so the prediction leaves out what a run does besides its passes");
  // Each worker has its own GPU, regardless of their number.
  if (workers > 0 && workers != table.workers && device.kind != "gpu")
    notes_.insert(
        fmt::format("the profile is of {} with {} each, not of {} at the same time; `paceline profile {} --workers {}` measures them",
                    counted(table.workers, "worker"), counted(table.threads, "thread"), workers, graph.network(), workers));
  if (settings.tensor > 1) {
    RooflineSettings alone = settings;
    alone.tensor = 1;
    whole_ = std::make_unique<RooflineTimes>(graph, device, alone);
    notes_.insert("layers that ranks share were not measured: the roofline gives their share of the measured times");
  }
}

double ProfileTimes::unit_seconds(int unit, const Key& key, std::set<std::string>& notes) const {
  const auto& [work, samples] = key;
  const Timed timed = seconds_of(table_, static_cast<std::size_t>(unit), work, static_cast<double>(samples));
  if (timed.outside) notes.insert(timed.note);
  if (!whole_) return timed.seconds;
  const schedule::Action pass{.kind = schedule::Action::Kind::compute, .work = work, .first = unit, .last = unit + 1};
  const double whole = whole_->seconds(pass, samples);
  return whole > 0 ? timed.seconds * local_.seconds(pass, samples) / whole : timed.seconds;
}

double ProfileTimes::haste(std::int64_t samples) const {
  const double around = perf::around_seconds(table_, static_cast<double>(samples));
  if (around >= 0) return 1;
  double pieces = offload_ ? 0 : update_seconds(table_, optimizer_, static_cast<double>(parameters_));
  for (std::size_t unit = 0; unit < table_.units.size(); ++unit)
    for (const Work work : {Work::forward, Work::backward}) pieces += seconds_of(table_, unit, work, static_cast<double>(samples)).seconds;
  return pieces > 0 ? std::max(0.5, 1 + around / pieces) : 1;
}

double ProfileTimes::around_seconds(std::int64_t samples) const {
  return std::max(0.0, perf::around_seconds(table_, static_cast<double>(samples)));
}

const ProfileTimes::Sums& ProfileTimes::sums_for(const Key& key) const {
  if (const auto found = sums_.find(key); found != sums_.end()) return found->second;
  Sums sums{.seconds = {0}, .notes = {}};
  const double factor = haste(key.second);
  for (int unit = 0; unit < std::ssize(table_.units); ++unit)
    sums.seconds.push_back(sums.seconds.back() + factor * unit_seconds(unit, key, sums.notes));
  return sums_.emplace(key, std::move(sums)).first->second;
}

double ProfileTimes::seconds(const schedule::Action& action, std::int64_t samples) const {
  const bool is_pass = action.work >= Work::forward && action.work <= Work::weight_gradients;
  if (action.work == Work::update && !offload_) return update_seconds(table_, optimizer_, static_cast<double>(action.elements));
  if (!is_pass) return local_.seconds(action, samples);
  const std::vector<double>& sums = sums_for({action.work, samples}).seconds;
  return sums.at(static_cast<std::size_t>(action.last)) - sums.at(static_cast<std::size_t>(action.first));
}

Doubt ProfileTimes::doubt(std::span<const std::int64_t> samples) const {
  std::set<std::string> notes = notes_;
  for (const std::int64_t count : samples) notes.merge(std::set(sums_for({Work::forward, count}).notes));
  return {.share = uncertainty_of(Source::measured) + (notes.empty() ? 0 : kOutside), .notes = {notes.begin(), notes.end()}};
}

}  // namespace paceline::perf

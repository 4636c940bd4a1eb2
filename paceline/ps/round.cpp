#include "paceline/ps/round.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/ps/ledger.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kMostEntries = 1 << 14;  // there are never more minibatches in flight
constexpr std::int64_t kHasGradient = 1, kHasStatistics = 2;

auto order_of(const Round::Key& key) { return std::tuple(key.number, key.number > 0 ? 0 : key.worker); }

}  // namespace

std::vector<Round::Entry>::iterator Round::find(const Key& key) {
  return std::ranges::lower_bound(entries_, order_of(key), {}, [](const Entry& one) { return order_of(one.key); });
}

// If a worker was lost after its report, another one pushes its minibatch; that other worker's report was a duplicate.
Round::Entry& Round::entry(const Key& key) {
  auto place = find(key);
  if (place == entries_.end() || order_of(place->key) != order_of(key)) place = entries_.insert(place, Entry{.key = key});
  place->key.worker = key.worker;
  return *place;
}

std::shared_ptr<float[]> Round::spare(std::vector<std::shared_ptr<float[]>>& from, std::int64_t count) {
  if (from.empty()) return allocate_(count);
  std::shared_ptr<float[]> memory = std::move(from.back());
  from.pop_back();
  return memory;
}

void Round::recycle(Entry& entry) {
  if (entry.gradient) spare_gradients_.push_back(std::move(entry.gradient));
  if (entry.statistics) spare_statistics_.push_back(std::move(entry.statistics));
}

void Round::report(const Place& place, const Key& key, const float* statistics) {
  Entry& reported = entry(key);
  if (!reported.statistics) reported.statistics = spare(spare_statistics_, statistics_);
  for_each(place, statistics_, Copy{reported.statistics.get(), statistics});
}

void Round::push(const Place& place, const Key& key, const float* gradient, float scale, float rate) {
  Entry& pushed = entry(key);
  if (!pushed.gradient) pushed.gradient = spare(spare_gradients_, length_);
  pushed.scale = scale, pushed.rate = rate;
  for_each_parallel(place, length_, Copy{pushed.gradient.get(), gradient});
}

void Round::forget(const Key& key) {
  const auto place = find(key);
  if (place == entries_.end() || order_of(place->key) != order_of(key) || place->gradient) return;
  recycle(*place);
  entries_.erase(place);
}

void Round::blend_alone(const Place& place, const Key& key, float* into, float share) {
  const auto found = find(key);
  if (found == entries_.end() || order_of(found->key) != order_of(key)) return;
  if (found->statistics) for_each(place, statistics_, Blend{into, found->statistics.get(), 1 - share, share});
  forget(key);
}

void Round::add_up(const Place& place, float* into) const {
  bool first = true;
  for (const Entry& one : entries_) {
    if (!one.gradient) continue;
    if (std::exchange(first, false)) for_each_parallel(place, length_, Scale{into, one.gradient.get(), one.scale});
    else for_each_parallel(place, length_, Blend{into, one.gradient.get(), 1, one.scale});
  }
}

void Round::blend(const Place& place, float* into, float share) const {
  for (const Entry& one : entries_)
    if (one.gradient && one.statistics) for_each(place, statistics_, Blend{into, one.statistics.get(), 1 - share, share});
}

Round::Last Round::last() const {
  const auto last = std::ranges::find_if(entries_.rbegin(), entries_.rend(), [](const Entry& one) { return one.gradient != nullptr; });
  ensure(last != entries_.rend(), "an update has contributions");
  return {last->key.worker, last->rate};
}

void Round::complete() {
  for (Entry& one : entries_)
    if (one.gradient) recycle(one), one.key.number = -1;
  std::erase_if(entries_, [](const Entry& one) { return one.key.number < 0; });
}

std::int64_t Round::pushed() const {
  return std::ranges::count_if(entries_, [](const Entry& one) { return one.gradient != nullptr; });
}

bool Round::has(std::int64_t number) const {
  return std::ranges::any_of(entries_, [&](const Entry& one) { return one.gradient && one.key.number == number; });
}

std::vector<Round::Array> Round::arrays() const {
  std::vector<Array> result;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string name = "round." + std::to_string(i);
    if (entries_[i].gradient) result.push_back({name + ".gradient", entries_[i].gradient.get(), length_});
    if (entries_[i].statistics && statistics_ > 0)
      result.push_back({name + ".statistics", entries_[i].statistics.get(), statistics_, false});
  }
  return result;
}

// The number of entries; then for each its number, its worker, the bits of its scale and rate, and which of its arrays have arrived.
void Round::save(std::vector<std::int64_t>& into) const {
  into.push_back(std::ssize(entries_));
  for (const Entry& one : entries_)
    into.insert(into.end(), {one.key.number, one.key.worker, std::bit_cast<std::int32_t>(one.scale), std::bit_cast<std::int32_t>(one.rate),
                             (one.gradient ? kHasGradient : 0) | (one.statistics ? kHasStatistics : 0)});
}

bool Round::read(std::span<const std::int64_t>& from) {
  constexpr std::size_t kValues = 5;
  const auto is_float = [](std::int64_t bits) { return std::in_range<std::int32_t>(bits); };
  const auto to_float = [](std::int64_t bits) { return std::bit_cast<float>(static_cast<std::int32_t>(bits)); };
  if (from.empty() || from[0] < 0 || from[0] > kMostEntries || from.size() - 1 < kValues * static_cast<std::size_t>(from[0])) return false;
  std::vector<Entry> entries;
  auto rest = from.subspan(1);
  for (std::int64_t left = from[0]; left > 0; --left, rest = rest.subspan(kValues)) {
    const bool known = rest[0] >= 0 && rest[0] <= kMostMinibatches && rest[1] >= 0 && rest[1] < kMostEntries && is_float(rest[2]) &&
                       is_float(rest[3]) && rest[4] > 0 && rest[4] <= (kHasGradient | kHasStatistics);
    if (!known) return false;
    Entry one{.key = {rest[0], static_cast<int>(rest[1])}, .scale = to_float(rest[2]), .rate = to_float(rest[3])};
    if (!entries.empty() && order_of(entries.back().key) >= order_of(one.key)) return false;
    if (rest[4] & kHasGradient) one.gradient = allocate_(length_);
    if (rest[4] & kHasStatistics) one.statistics = allocate_(statistics_);
    entries.push_back(std::move(one));
  }
  entries_ = std::move(entries);
  from = rest;
  return true;
}

}  // namespace paceline::ps

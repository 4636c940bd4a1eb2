#include "paceline/ps/ledger.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "paceline/base/error.h"

namespace paceline::ps {
namespace {

std::int64_t take_front(std::span<const std::int64_t>& from) {
  if (from.empty()) throw ConfigError("the checkpoint's ledger of minibatches is damaged; resume from an earlier checkpoint");
  const std::int64_t number = from.front();
  from = from.subspan(1);
  return number;
}

}  // namespace

bool SequenceSet::contains(std::int64_t number) const {
  if (number < watermark_) return true;
  const auto after = intervals_.upper_bound(number);
  return after != intervals_.begin() && number < std::prev(after)->second;
}

bool SequenceSet::insert(std::int64_t number) {
  if (contains(number)) return false;
  const auto after = intervals_.upper_bound(number);
  const bool touches_next = after != intervals_.end() && after->first == number + 1;
  const std::int64_t end = touches_next ? after->second : number + 1;
  const bool touches_previous = after != intervals_.begin() && std::prev(after)->second == number;
  if (touches_previous) std::prev(after)->second = end;
  else intervals_[number] = end;
  if (touches_next) intervals_.erase(number + 1);
  merge_into_watermark();
  return true;
}

void SequenceSet::insert_all_below(std::int64_t number) {
  watermark_ = std::max(watermark_, number);
  merge_into_watermark();
}

void SequenceSet::merge_into_watermark() {
  while (!intervals_.empty() && intervals_.begin()->first <= watermark_) {
    watermark_ = std::max(watermark_, intervals_.begin()->second);
    intervals_.erase(intervals_.begin());
  }
}

void SequenceSet::save(std::vector<std::int64_t>& into) const {
  into.insert(into.end(), {watermark_, std::ssize(intervals_)});
  for (const auto& [first, end] : intervals_) into.insert(into.end(), {first, end});
}

void SequenceSet::load(std::span<const std::int64_t>& from) {
  SequenceSet loaded;
  loaded.watermark_ = take_front(from);
  for (std::int64_t count = take_front(from); count > 0; --count) {
    const std::int64_t first = take_front(from), end = take_front(from);
    const std::int64_t last = loaded.intervals_.empty() ? loaded.watermark_ : loaded.intervals_.rbegin()->second;
    if (first <= last || end <= first)
      throw ConfigError("the checkpoint's ledger of minibatches is damaged; resume from an earlier checkpoint");
    loaded.intervals_[first] = end;
  }
  *this = std::move(loaded);
}

void Ledger::handle(std::int64_t number, std::int64_t complete_below) {
  handled_.insert_all_below(complete_below);
  handled_.insert(number);
  advised_.erase(number);
  advised_.erase(advised_.begin(), advised_.lower_bound(complete_below));  // cancelled: reported and never pushed
}

const Advice* Ledger::advice(std::int64_t number) const {
  const auto found = advised_.find(number);
  return found == advised_.end() ? nullptr : &found->second;
}

void Ledger::save(std::vector<std::int64_t>& into) const {
  handled_.save(into);
  into.push_back(std::ssize(advised_));
  for (const auto& [number, advice] : advised_)
    into.insert(into.end(), {number, std::bit_cast<std::int64_t>(advice.scale), std::bit_cast<std::int64_t>(advice.steps),
                             std::bit_cast<std::int64_t>(advice.delay)});
}

void Ledger::load(std::span<const std::int64_t>& from) {
  Ledger loaded;
  loaded.handled_.load(from);
  for (std::int64_t count = take_front(from); count > 0; --count) {
    const std::int64_t number = take_front(from);
    Advice& advice = loaded.advised_[number];
    advice.scale = std::bit_cast<double>(take_front(from));
    advice.steps = std::bit_cast<double>(take_front(from));
    advice.delay = std::bit_cast<double>(take_front(from));
  }
  *this = std::move(loaded);
}

}  // namespace paceline::ps

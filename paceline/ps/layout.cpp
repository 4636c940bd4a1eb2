#include "paceline/ps/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/json_number.h"

namespace paceline::ps {
namespace {

constexpr std::size_t kShown = 3;  // differences that are reported

std::string list(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void compare(const ArenaLayout::Entry& here, const ArenaLayout::Entry& there, std::vector<std::string>& found) {
  if (here.shape != there.shape) found.push_back(fmt::format("{} is {} here and {} there", here.name, list(here.shape), list(there.shape)));
  else if (here.offset != there.offset)
    found.push_back(fmt::format("{} begins at element {} here and {} there", here.name, here.offset, there.offset));
  else if (here.decay != there.decay) found.push_back(fmt::format("{} has weight decay only {}", here.name, here.decay ? "here" : "there"));
}

bool sound(const ArenaLayout& layout) {
  std::int64_t end = 0;
  for (const ArenaLayout::Entry& entry : layout.entries) {
    std::int64_t count = 1;
    for (const std::int64_t size : entry.shape)
      if (size < 0 || __builtin_mul_overflow(count, size, &count)) return false;
    if (count != entry.count || entry.offset < end || entry.offset > layout.length || count > layout.length - entry.offset) return false;
    end = entry.offset + count;
  }
  return layout.length >= 0 && layout.statistics >= 0;
}

}  // namespace

std::string difference(const ArenaLayout& here, const ArenaLayout& there) {
  if (here == there) return "";
  std::map<std::string_view, const ArenaLayout::Entry*> by_name;
  for (const ArenaLayout::Entry& entry : there.entries) by_name[entry.name] = &entry;
  std::vector<std::string> found;
  for (const ArenaLayout::Entry& entry : here.entries) {
    const auto same = by_name.find(entry.name);
    if (same == by_name.end()) {
      found.push_back(fmt::format("{} {} is only here", entry.name, list(entry.shape)));
    } else {
      compare(entry, *same->second, found);
      by_name.erase(same);
    }
  }
  for (const ArenaLayout::Entry& entry : there.entries)
    if (by_name.contains(entry.name)) found.push_back(fmt::format("{} {} is only there", entry.name, list(entry.shape)));
  if (here.length != there.length) found.push_back(fmt::format("the arena has {} elements here and {} there", here.length, there.length));
  if (here.statistics != there.statistics)
    found.push_back(fmt::format("batch norms have {} statistics here and {} there", here.statistics, there.statistics));
  if (found.empty()) found.emplace_back("two tensors have the same name");

  const std::size_t shown = std::min(found.size(), kShown);
  std::string line = fmt::format("{}", fmt::join(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (found.size() > shown) line += fmt::format("; and {} more", found.size() - shown);
  return line;
}

std::string serialise(const ArenaLayout& layout) {
  nlohmann::json entries = nlohmann::json::array();
  for (const ArenaLayout::Entry& entry : layout.entries)
    entries.push_back({entry.name, entry.shape, entry.offset, entry.count, entry.decay});
  return nlohmann::json{{"length", layout.length}, {"statistics", layout.statistics}, {"entries", std::move(entries)}}.dump();
}

ArenaLayout parse_layout(std::string_view text) {
  const auto refuse = [](const std::string& why) -> DataError { return {"a model's layout", why}; };
  const auto whole = [&](const nlohmann::json& value) {
    const auto number = whole_number(value);
    if (!number) throw refuse(fmt::format("expected a whole number, got {}", value.dump()));
    return *number;
  };
  ArenaLayout layout;
  try {
    const auto json = nlohmann::json::parse(text);
    layout.length = whole(json.at("length")), layout.statistics = whole(json.at("statistics"));
    for (const auto& row : json.at("entries")) {
      ArenaLayout::Entry entry{.name = row.at(0), .shape = {}, .offset = whole(row.at(2)), .count = whole(row.at(3)), .decay = row.at(4)};
      for (const auto& extent : row.at(1)) entry.shape.push_back(whole(extent));
      layout.entries.push_back(std::move(entry));
    }
  } catch (const nlohmann::json::exception& error) {
    throw refuse(error.what());
  }
  if (!sound(layout)) throw refuse("its tensors overlap, lie outside the arena or do not have the elements of their shapes");
  return layout;
}

std::vector<optim::Segment> segments_of(const ArenaLayout& layout) {
  std::vector<optim::Segment> segments;
  for (const ArenaLayout::Entry& entry : layout.entries) segments.push_back({entry.offset, entry.count, entry.decay});
  return segments;
}

compress::RangeLayout parts_of(const ArenaLayout& layout) {
  compress::RangeLayout parts{.parts = {}, .length = layout.length};
  for (const ArenaLayout::Entry& entry : layout.entries) {
    const std::int64_t rows = entry.shape.size() >= 2 ? entry.shape[0] : 1;
    parts.parts.push_back({entry.offset, entry.count, rows, entry.count / std::max<std::int64_t>(rows, 1)});
  }
  return parts;
}

}  // namespace paceline::ps

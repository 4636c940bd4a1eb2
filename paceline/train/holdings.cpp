#include "paceline/train/holdings.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"

namespace paceline::train {
namespace {

using Extents = std::vector<std::int64_t>;

/// What one worker reports about one item.
struct Claim {
  std::string name;
  std::int64_t element = 0;  // 0: the name alone
  Extents whole, first, shape;
};

Extents numbers_in(std::string_view text) {
  Extents numbers;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    numbers.push_back(std::stoll(std::string(text.substr(begin, end - begin))));
    begin = end + 1;
  }
  return numbers;
}

std::vector<Claim> claims_in(std::string_view text) {
  std::vector<Claim> claims;
  while (!text.empty()) {
    std::string_view fields[5];
    for (std::size_t i = 0; i < 5; ++i) {
      const std::size_t end = text.find(i == 4 ? '\n' : '\t');
      fields[i] = text.substr(0, end);
      text.remove_prefix(end + 1);
    }
    claims.push_back(
        {std::string(fields[0]), numbers_in(fields[1]).at(0), numbers_in(fields[2]), numbers_in(fields[3]), numbers_in(fields[4])});
  }
  return claims;
}

/// The texts of all workers; a single one if they are the same, as they are unless workers hold different parts.
std::vector<std::string> gather_all(const std::string& mine, comm::Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  std::vector<std::int64_t> hashes(ranks), sizes(ranks);
  hashes[rank] = static_cast<std::int64_t>(ContentHash().update(mine).digest()), sizes[rank] = std::ssize(mine);
  comm.run(comm::all_gather(hashes, {.deadline = comm::kUntilTheEnd}));
  comm.run(comm::all_gather(sizes, {.deadline = comm::kUntilTheEnd}));
  if (std::ranges::count(hashes, hashes[0]) == std::ssize(hashes)) return {mine};
  const auto room = static_cast<std::size_t>(std::ranges::max(sizes));
  std::vector<std::byte> texts(ranks * room);
  std::memcpy(&texts[rank * room], mine.data(), mine.size());
  comm.run(comm::all_gather(texts, {.deadline = comm::kUntilTheEnd}));
  std::vector<std::string> all;
  for (std::size_t i = 0; i < ranks; ++i)
    all.emplace_back(reinterpret_cast<const char*>(&texts[i * room]), static_cast<std::size_t>(sizes[i]));
  return all;
}

/// Merges the workers' reports, one after the other.
class Merge {
 public:
  /// `ranks` all report this; `own`: this worker is one of them.
  void add(const std::vector<Claim>& claims, const std::vector<int>& ranks, bool own) {
    std::size_t behind = 0;  // where to insert a new name: after the previous one
    for (std::size_t i = 0; i < claims.size(); ++i) {
      const Claim& claim = claims[i];
      if (i == 0 || claim.name != claims[i - 1].name) behind = place_of(claim.name, behind) + 1;
      HeldTensor& tensor = tensors_[claim.name];
      tensor.name = claim.name;
      if (claim.element > 0) add_part(tensor, claim, ranks, i, own);
    }
  }

  /// The same for another process; new names are placed last.
  void append(const std::vector<Claim>& claims, int rank) {
    for (const Claim& claim : claims)
      if (tensors_.try_emplace(claim.name).second) order_.push_back(claim.name), tensors_[claim.name].name = claim.name;
    add(claims, {rank}, false);
  }

  std::vector<HeldTensor> finish() {
    std::vector<HeldTensor> result;
    for (const std::string& name : order_) {
      HeldTensor& tensor = tensors_[name];
      if (!make_a_whole(tensor.shape, tensor.parts)) throw InternalError(fmt::format("the workers' parts of '{}' do not cover it", name));
      result.push_back(std::move(tensor));
    }
    return result;
  }

 private:
  /// Searches in order, since most workers report what those before them did.
  std::size_t place_of(const std::string& name, std::size_t expected) {
    if (expected < order_.size() && order_[expected] == name) return expected;
    if (tensors_.contains(name)) return static_cast<std::size_t>(std::ranges::find(order_, name) - order_.begin());
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(expected), name);
    return expected;
  }

  static void add_part(HeldTensor& tensor, const Claim& claim, const std::vector<int>& ranks, std::size_t item, bool own) {
    if (tensor.parts.empty()) tensor.shape = claim.whole, tensor.element = claim.element;
    if (tensor.shape != claim.whole || tensor.element != claim.element)
      throw InternalError(fmt::format("workers disagree on the shape or the type of '{}'", claim.name));
    const auto same = [&](const HeldPart& part) { return part.first == claim.first && part.shape == claim.shape; };
    auto part = std::ranges::find_if(tensor.parts, same);
    if (part == tensor.parts.end()) {
      const std::int64_t count = std::accumulate(claim.shape.begin(), claim.shape.end(), std::int64_t{1}, std::multiplies{});
      part = tensor.parts.insert(part, {claim.first, claim.shape, count * claim.element, {}, {}, item});
    }
    part->holders.insert(part->holders.end(), ranks.begin(), ranks.end());
    if (own) part->own = item;
  }

  std::vector<std::string> order_;
  std::map<std::string, HeldTensor> tensors_;
};

bool apart(const HeldPart& left, const HeldPart& right) {
  for (std::size_t dim = 0; dim < left.first.size(); ++dim)
    if (left.first[dim] + left.shape[dim] <= right.first[dim] || right.first[dim] + right.shape[dim] <= left.first[dim]) return true;
  return false;
}

}  // namespace

// A line for each item: name, bytes of an element, and three lists of numbers.
std::string report_of(std::span<const step::NamedTensor> tensors) {
  std::string text;
  for (const step::NamedTensor& item : tensors)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\n", item.name, item.held() ? item.tensor.element_size() : 0, fmt::join(item.shape(), ","),
                        fmt::join(item.first(), ","), fmt::join(item.tensor.sizes(), ","));
  return text;
}

bool HeldPart::held_by(int rank) const { return std::ranges::binary_search(holders, rank); }

bool make_a_whole(const std::vector<std::int64_t>& shape, std::span<const HeldPart> parts) {
  const auto elements = [](const Extents& extents) {  // of an index that may be damaged: −1 if the product would overflow
    std::int64_t count = 1;
    for (const std::int64_t extent : extents)
      if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::int64_t{-1};
    return count;
  };
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const HeldPart& part = parts[i];
    if (part.first.size() != shape.size() || part.shape.size() != shape.size()) return false;
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      if (part.first[dim] < 0 || part.shape[dim] < 0 || part.first[dim] > shape[dim] - part.shape[dim]) return false;
    for (std::size_t j = 0; j < i; ++j)
      if (!apart(part, parts[j])) return false;
    covered += elements(part.shape);
  }
  return !parts.empty() && covered == elements(shape);
}

std::vector<HeldTensor> holdings_of(std::span<const step::NamedTensor> tensors, std::span<const std::string> others) {
  Merge merge;
  merge.add(claims_in(report_of(tensors)), {0}, true);
  for (std::size_t i = 0; i < others.size(); ++i) merge.append(claims_in(others[i]), static_cast<int>(i) + 1);
  return merge.finish();
}

std::vector<HeldTensor> gather_holdings(std::span<const step::NamedTensor> tensors, comm::Communicator& comm) {
  if (comm.size() == 1) return holdings_of(tensors);
  Merge merge;
  const std::vector<std::string> texts = gather_all(report_of(tensors), comm);
  std::vector<int> everybody(static_cast<std::size_t>(comm.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (texts.size() == 1) merge.add(claims_in(texts[0]), everybody, true);
  else
    for (const int rank : everybody) merge.add(claims_in(texts[static_cast<std::size_t>(rank)]), {rank}, rank == comm.rank());
  return merge.finish();
}

}  // namespace paceline::train

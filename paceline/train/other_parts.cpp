#include "paceline/train/other_parts.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/part_orders.h"

namespace paceline::train {
namespace {

using Json = nlohmann::json;

constexpr auto kAskAgain = std::chrono::milliseconds(5);  // whether shards are on disk
constexpr const char* kGone = "it is gone";

}  // namespace

OtherParts::OtherParts(step::Holders& holders, std::vector<std::string> names) : holders_(holders), names_(std::move(names)) {
  holders_.give(std::vector(count(), orders::pack({{"do", orders::kReport}})));
  const auto answers = holders_.answers(/*wait=*/true);
  for (std::size_t i = 0; i < count(); ++i) {
    if (answers[i]->empty()) throw HolderGone(names_[i]);
    const Json answer = orders::unpack(*answers[i]);
    reports_.push_back(answer.at("held").get<std::string>());
    not_finite_.push_back(answer.at("not_finite").get<std::string>());
  }
}

std::optional<std::string> OtherParts::fault() const {
  const auto bad = std::ranges::find_if_not(not_finite_, &std::string::empty);
  if (bad == not_finite_.end()) return std::nullopt;
  return fmt::format("'{}' on {} is not finite", *bad, names_[static_cast<std::size_t>(bad - not_finite_.begin())]);
}

std::filesystem::path OtherParts::file(std::size_t i) const { return folder_ / shard_file(i + 1, shards_); }

void OtherParts::write(const std::filesystem::path& folder, std::size_t shards) {
  folder_ = std::filesystem::absolute(folder), shards_ = shards;
  std::vector<std::string> orders;
  for (std::size_t i = 0; i < count(); ++i) orders.push_back(orders::pack({{"do", orders::kWrite}, {"file", file(i).string()}}));
  holders_.give(orders);
  const auto answers = holders_.answers(/*wait=*/true);
  problems_.assign(count(), std::nullopt);
  for (std::size_t i = 0; i < count(); ++i)
    if (answers[i]->empty()) problems_[i] = kGone;
}

void OtherParts::ask_for_outcomes() {
  std::vector<std::string> orders(count());
  for (std::size_t i = 0; i < count(); ++i)
    if (!problems_[i]) orders[i] = orders::pack({{"do", orders::kOutcome}, {"file", file(i).string()}});
  holders_.give(orders);
  asked_ = true;
}

std::optional<std::string> OtherParts::outcome(bool wait) {
  for (;; std::this_thread::sleep_for(kAskAgain)) {
    if (!asked_) ask_for_outcomes();
    const auto answers = holders_.answers(wait);
    asked_ = false;
    for (std::size_t i = 0; i < count(); ++i) {
      if (problems_[i]) continue;
      if (!answers[i]) asked_ = true;
      else if (answers[i]->empty()) problems_[i] = kGone;
      else if (const Json answer = orders::unpack(*answers[i]); answer.at("done").get<bool>())
        problems_[i] = answer.at("problem").get<std::string>();
    }
    if (std::ranges::all_of(problems_, [](const auto& problem) { return problem.has_value(); })) break;
    if (!wait) return std::nullopt;
  }
  const auto bad = std::ranges::find_if_not(problems_, [](const auto& problem) { return problem->empty(); });
  if (bad == problems_.end()) return "";
  return fmt::format("{}: {}", names_[static_cast<std::size_t>(bad - problems_.begin())], **bad);
}

std::string OtherParts::ask(std::size_t process, const std::string& order) const {
  std::vector<std::string> orders(count());
  orders[process - 1] = order;
  holders_.give(orders);
  const std::optional<std::string> answer = holders_.answers(/*wait=*/true)[process - 1];
  if (answer->empty()) throw HolderGone(names_[process - 1]);
  return *answer;
}

ContentHash OtherParts::hash(std::size_t process, const ContentHash& so_far, const std::vector<HashItem>& items) const {
  Json list = Json::array();
  for (const HashItem& item : items)
    if (item.tensor) list.push_back(*item.tensor);
    else list.push_back(item.text);
  const std::string answer = ask(process, orders::pack({{"do", orders::kHash}, {"hash", orders::pack_hash(so_far)}, {"items", list}}));
  return orders::unpack_hash(orders::unpack(answer).at("hash").get<std::string>());
}

std::string OtherParts::read(std::size_t process, std::size_t tensor) const {
  return orders::unpack(ask(process, orders::pack({{"do", orders::kRead}, {"item", tensor}}))).at("bytes").get<std::string>();
}

}  // namespace paceline::train

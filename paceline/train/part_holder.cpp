#include "paceline/train/part_holder.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/step/finite_tensors.h"
#include "paceline/train/holdings.h"
#include "paceline/train/part_orders.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

using Json = nlohmann::json;

/// The first parameter that is not finite.
std::string not_finite(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& item : tensors)
    if (item.name.starts_with(kModelPrefix) && item.tensor.is_floating_point() && !step::all_finite(item.tensor))
      return item.name.substr(kModelPrefix.size());
  return "";
}

std::string raw_values(const NamedTensor& item) {
  const HostTensors host(std::span(&item, 1));
  const std::span<const std::byte> bytes = host.views().front().data;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hash_onwards(const Json& order, const std::vector<NamedTensor>& tensors) {
  ContentHash hash = orders::unpack_hash(order.at("hash").get<std::string>());
  for (const Json& item : order.at("items"))
    if (item.is_string()) hash.update(item.get<std::string>());
    else hash.update(HostTensors(std::span(&tensors.at(item.get<std::size_t>()), 1)).views().front().data);
  return orders::pack({{"hash", orders::pack_hash(hash)}});
}

}  // namespace

std::string PartHolder::carry_out(std::string_view text) try {
  const Json order = orders::unpack(text);
  const auto what = order.at("do").get<std::string>();
  if (what == orders::kOutcome) return outcome_of(order.at("file").get<std::string>());
  std::string answer;
  show_([&](const std::vector<NamedTensor>& tensors) {
    if (what == orders::kReport) answer = orders::pack({{"held", report_of(tensors)}, {"not_finite", not_finite(tensors)}});
    else if (what == orders::kHash) answer = hash_onwards(order, tensors);
    else if (what == orders::kRead) answer = orders::pack({{"bytes", raw_values(tensors.at(order.at("item").get<std::size_t>()))}});
    else if (what == orders::kWrite) write(order.at("file").get<std::string>(), tensors), answer = orders::pack(Json::object());
    else throw DataError("an order about a checkpoint", "'" + what + "' is unknown");
  });
  return answer;
} catch (const Json::exception& problem) {
  throw DataError("an order about a checkpoint", problem.what());
}

// A write of an earlier checkpoint is still in progress only if the leader was restarted and no longer knows of it.
void PartHolder::write(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors) {
  if (writing_.valid()) writing_.wait();
  std::vector<NamedTensor> held = tensors;
  std::erase_if(held, [](const NamedTensor& item) { return !item.held(); });
  file_ = file;
  writing_ = write_in_background(clock_, file, MakeFolder::no, std::make_unique<const ShardCopy>(held));
}

std::string PartHolder::outcome_of(const std::filesystem::path& file) {
  if (file_ != file) return orders::pack({{"done", true}, {"problem", "it was restarted before its part was on disk"}});
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) written_ = writing_.get();
  return orders::pack({{"done", !writing_.valid()}, {"problem", written_.problem}});
}

}  // namespace paceline::train

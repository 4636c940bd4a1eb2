#include "paceline/train/checkpoint_metadata.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "paceline/base/checksum.h"
#include "paceline/base/json_number.h"

namespace paceline::train {
namespace {

constexpr const char *kFormat = "paceline-checkpoint-2", *kAnyFormat = "paceline-checkpoint-";
constexpr const char* kOwnKeys[] = {"position", "recipe", "tensors", "crc32c"};  // other safetensors files have none of them

nlohmann::json to_json(const Position& p) {
  return {
      {"step", p.step},   {"epoch", p.epoch},     {"batch", p.batch},     {"samples", p.samples},           {"loss_sum", p.loss_sum},
      {"right", p.right}, {"targets", p.targets}, {"seconds", p.seconds}, {"dataset_size", p.dataset_size}, {"vocabulary", p.vocabulary}};
}

Position position_from(const std::string& file, const nlohmann::json& json) {
  const auto count = [&](const char* key, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    const auto number = whole_number(json.at(key), most);
    if (!number) throw DataError(file, fmt::format("its metadata is damaged: {} is {}, expected a whole number", key, json.at(key).dump()));
    return *number;
  };
  Position p;
  p.step = count("step"), p.epoch = count("epoch"), p.batch = count("batch"), p.samples = count("samples");
  p.loss_sum = json.at("loss_sum"), p.right = json.at("right"), p.targets = count("targets"), p.seconds = json.at("seconds");
  if (json.contains("dataset_size")) p.dataset_size = count("dataset_size");
  if (json.contains("vocabulary"))
    p.vocabulary = static_cast<std::uint32_t>(count("vocabulary", std::numeric_limits<std::uint32_t>::max()));
  return p;
}

}  // namespace

std::string seal_of(const safetensors::Metadata& metadata) {
  std::uint32_t crc = 0;
  for (const auto& [key, value] : metadata)
    if (key != "crc32c") crc = crc32c(bytes_of(fmt::format("{}={}\n", key, value)), crc);
  return std::to_string(crc);
}

bool is_checkpoint(const safetensors::Metadata& metadata) {
  return std::ranges::any_of(kOwnKeys, [&](const char* key) { return metadata.contains(key); });
}

const std::string& metadata_entry(const std::string& file, const safetensors::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw DataError(file, fmt::format("its metadata is damaged: '{}' is missing", key));
  return found->second;
}

void check_seal(const std::string& file, const safetensors::Metadata& metadata) {
  if (metadata_entry(file, metadata, "crc32c") != seal_of(metadata))
    throw DataError(file, "its metadata (position, recipe, list of tensors) is damaged: the checksum does not match");
}

std::string inventory_of(std::span<const safetensors::Tensor> tensors) {
  nlohmann::json rows = nlohmann::json::object();
  for (const safetensors::Tensor& tensor : tensors)
    rows[tensor.name] = {safetensors::name_of(tensor.dtype), tensor.shape, crc32c(tensor.data)};
  return rows.dump();
}

void check_inventory(const std::string& file, const std::string& inventory, std::span<const safetensors::Tensor> tensors, Check check) try {
  const auto written = nlohmann::json::parse(inventory);
  if (written.size() != tensors.size()) throw DataError(file, fmt::format("holds {} tensors, expected {}", tensors.size(), written.size()));
  for (const safetensors::Tensor& tensor : tensors) {
    const auto row = written.find(tensor.name);
    const bool fits = row != written.end() && row->is_array() && row->size() == 3 && (*row)[0] == safetensors::name_of(tensor.dtype) &&
                      (*row)[1] == tensor.shape && (check == Check::structure || (*row)[2] == crc32c(tensor.data));
    if (!fits) throw DataError(file, fmt::format("tensor '{}' is damaged (its name, type, shape or checksum does not match)", tensor.name));
  }
} catch (const nlohmann::json::exception& problem) {
  throw DataError(file, fmt::format("its metadata is damaged ({})", problem.what()));
}

safetensors::Metadata describe_run(const CheckpointMetadata& content) {
  safetensors::Metadata metadata = {
      {"format", kFormat}, {"position", to_json(content.position).dump()}, {"recipe", content.recipe}, {"network", content.network}};
  // A folder name may contain any bytes; those that are not UTF-8 are replaced.
  if (!content.class_names.empty())
    metadata["class_names"] = nlohmann::json(content.class_names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return metadata;
}

CheckpointMetadata run_described(const std::string& file, const safetensors::Metadata& metadata) try {
  const auto entry = [&](const char* key) { return metadata_entry(file, metadata, key); };
  if (const std::string& format = entry("format"); format != kFormat) {
    const std::string why = fmt::format("format '{}', expected '{}'", format, kFormat);
    if (!format.starts_with(kAnyFormat)) throw DataError(file, why);
    throw OtherFormat(file, why + "; resume it with the version that wrote it");
  }
  check_seal(file, metadata);
  CheckpointMetadata content{.position = {}, .recipe = entry("recipe"), .network = entry("network")};
  content.position = position_from(file, nlohmann::json::parse(entry("position")));
  if (metadata.contains("class_names")) content.class_names = nlohmann::json::parse(entry("class_names")).get<std::vector<std::string>>();
  return content;
} catch (const nlohmann::json::exception& problem) {
  throw DataError(file, fmt::format("its metadata is damaged ({})", problem.what()));
}

safetensors::Metadata pack_metadata(const CheckpointMetadata& content, std::span<const safetensors::Tensor> tensors) {
  safetensors::Metadata metadata = describe_run(content);
  metadata["tensors"] = inventory_of(tensors);
  metadata["crc32c"] = seal_of(metadata);
  return metadata;
}

CheckpointMetadata unpack_metadata(const std::string& file, const safetensors::Metadata& metadata,
                                   std::span<const safetensors::Tensor> tensors, Check check) {
  if (!is_checkpoint(metadata)) throw NotACheckpoint(file, "holds weights, not a checkpoint; load it with model.weights=FILE");
  CheckpointMetadata content = run_described(file, metadata);
  check_inventory(file, metadata_entry(file, metadata, "tensors"), tensors, check);
  return content;
}

}  // namespace paceline::train

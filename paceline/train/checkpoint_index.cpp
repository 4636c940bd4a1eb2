#include "paceline/train/checkpoint_index.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "paceline/base/json_number.h"

namespace paceline::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kShardFormat = "paceline-shard-1";

[[noreturn]] void refuse_index(const std::string& file, const std::string& why) {
  throw DataError(file, "the index of its files is damaged: " + why);
}

/// A file beside the index.
const std::string& plain_name(const std::string& file, const std::string& name) {
  if (name.empty() || name.starts_with('.') || name.find('/') != name.npos || name.find('\0') != name.npos)
    refuse_index(file, fmt::format("'{}' is not a file in its folder", name));
  return name;
}

std::int64_t index_number(const std::string& file, const Json& json) {
  const auto number = whole_number(json, std::numeric_limits<std::int64_t>::max());
  if (!number) refuse_index(file, fmt::format("{} where a whole number was expected", json.dump()));
  return *number;
}

/// Where a box begins. Earlier versions split tensors by rows and wrote a single number, the first row.
std::vector<std::int64_t> first_of(const std::string& file, const Json& json, std::size_t dimensions) {
  std::vector<std::int64_t> first;
  if (json.is_array())
    for (const Json& index : json) first.push_back(index_number(file, index));
  else if (const std::int64_t row = index_number(file, json); dimensions > 0) first.assign(dimensions, 0), first[0] = row;
  return first;
}

Json parse_index(const std::string& file, std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) refuse_index(file, "it has no weight_map");
  return json;
}

safetensors::Metadata metadata_of_index(const std::string& file, const Json& json) {
  const auto found = json.find("metadata");
  if (found == json.end() || !found->is_object()) refuse_index(file, "it has no metadata");
  safetensors::Metadata metadata;
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) refuse_index(file, fmt::format("'{}' is not text", key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

std::string shard_file(std::size_t shard, std::size_t shards) { return fmt::format("shard-{:05}-of-{:05}.safetensors", shard + 1, shards); }

std::vector<std::pair<std::string, std::string>> CheckpointIndex::weight_map() const {
  std::vector<std::pair<std::string, std::string>> map;
  for (const IndexedTensor& tensor : tensors)
    for (const StoredPiece& piece : tensor.pieces) map.emplace_back(piece.stored, shards.at(piece.shard).file);
  std::ranges::sort(map);
  return map;
}

safetensors::Metadata pack_shard(std::span<const safetensors::Tensor> tensors, std::span<const ShardBox> boxes) {
  Json places = Json::object();
  for (std::size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = Json::array({boxes[i].tensor, boxes[i].first});
  safetensors::Metadata metadata = {{"format", kShardFormat}, {"tensors", inventory_of(tensors)}, {"boxes", places.dump()}};
  metadata["crc32c"] = seal_of(metadata);
  return metadata;
}

CheckpointIndex index_shards(const std::filesystem::path& folder, std::size_t shards, const CheckpointMetadata& run,
                             std::vector<IndexedTensor> tensors) {
  CheckpointIndex index{run, {}, std::move(tensors)};
  std::map<std::string, IndexedTensor*> by_name;
  for (IndexedTensor& tensor : index.tensors) by_name[tensor.name] = &tensor;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const auto path = folder / shard_file(shard, shards);
    const safetensors::File opened(path);
    const std::string seal = metadata_entry(path.string(), opened.metadata(), "crc32c");
    index.shards.push_back({shard_file(shard, shards), seal, static_cast<std::int64_t>(std::filesystem::file_size(path))});
    check_shard(path.string(), opened, index.shards.back(), Check::structure);
    try {
      const Json boxes = Json::parse(metadata_entry(path.string(), opened.metadata(), "boxes"));
      for (const auto& [stored, place] : boxes.items()) {
        const auto found = by_name.find(place.at(0).get<std::string>());
        if (found == by_name.end()) throw DataError(path.string(), fmt::format("'{}' is not part of this checkpoint", stored));
        found->second->pieces.push_back({shard, stored, place.at(1).get<std::vector<std::int64_t>>()});
      }
    } catch (const Json::exception& problem) {
      throw DataError(path.string(), fmt::format("its metadata is damaged ({})", problem.what()));
    }
  }
  for (IndexedTensor& tensor : index.tensors) std::ranges::sort(tensor.pieces, {}, &StoredPiece::first);
  return index;
}

std::string pack_index(const CheckpointIndex& index) {
  Json shards = Json::array(), tensors = Json::array(), map = Json::object();
  std::int64_t bytes = 0;
  for (const CheckpointIndex::Shard& shard : index.shards) shards.push_back({shard.file, shard.bytes, shard.seal}), bytes += shard.bytes;
  for (const IndexedTensor& tensor : index.tensors) {
    Json pieces = Json::array();
    for (const StoredPiece& piece : tensor.pieces) pieces.push_back({piece.shard, piece.stored, piece.first});
    tensors.push_back({tensor.name, tensor.shape, pieces});
  }
  for (const auto& [stored, file] : index.weight_map()) map[stored] = file;
  safetensors::Metadata metadata = describe_run(index.run);
  metadata["shards"] = shards.dump(), metadata["tensors"] = tensors.dump(), metadata["total_size"] = std::to_string(bytes);
  metadata["crc32c"] = seal_of(metadata);
  return Json{{"metadata", metadata}, {"weight_map", map}}.dump();
}

bool is_checkpoint_index(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("metadata") && json["metadata"].is_object() && json["metadata"].contains("position");
}

CheckpointIndex unpack_index(const std::string& file, std::string_view text) try {
  const Json json = parse_index(file, text);
  const safetensors::Metadata metadata = metadata_of_index(file, json);
  CheckpointIndex index{run_described(file, metadata), {}, {}};
  for (const Json& row : Json::parse(metadata_entry(file, metadata, "shards")))
    index.shards.push_back({plain_name(file, row.at(0).get<std::string>()), row.at(2).get<std::string>(), index_number(file, row.at(1))});
  for (const Json& row : Json::parse(metadata_entry(file, metadata, "tensors"))) {
    IndexedTensor tensor{.name = row.at(0).get<std::string>(), .shape = {}};
    for (const Json& extent : row.at(1)) tensor.shape.push_back(index_number(file, extent));
    for (const Json& piece : row.at(2)) {
      const auto shard = static_cast<std::size_t>(index_number(file, piece.at(0)));
      if (shard >= index.shards.size())
        refuse_index(file, fmt::format("'{}' is in shard {} of {}", tensor.name, shard, index.shards.size()));
      tensor.pieces.push_back({shard, piece.at(1).get<std::string>(), first_of(file, piece.at(2), tensor.shape.size())});
    }
    index.tensors.push_back(std::move(tensor));
  }
  Json map = Json::object();
  for (const auto& [stored, where] : index.weight_map()) map[stored] = where;
  if (map != json["weight_map"]) refuse_index(file, "its weight_map names other tensors or files than its metadata");
  if (json.size() != 2) refuse_index(file, "it has unexpected entries");
  return index;
} catch (const Json::exception& problem) {
  refuse_index(file, problem.what());
}

void check_shard(const std::string& file, const safetensors::File& opened, const CheckpointIndex::Shard& expected, Check check) {
  const safetensors::Metadata& metadata = opened.metadata();
  if (metadata_entry(file, metadata, "format") != kShardFormat)
    throw DataError(file, fmt::format("format '{}', expected '{}'", metadata_entry(file, metadata, "format"), kShardFormat));
  check_seal(file, metadata);
  if (metadata_entry(file, metadata, "crc32c") != expected.seal)
    throw DataError(file, "belongs to another checkpoint than the index in its folder");
  check_inventory(file, metadata_entry(file, metadata, "tensors"), opened.tensors(), check);
}

std::vector<std::string> files_of_index(const std::string& file, std::string_view text) {
  const Json json = parse_index(file, text);
  std::set<std::string> files;
  for (const auto& [name, where] : json["weight_map"].items()) {
    if (!where.is_string()) refuse_index(file, fmt::format("the file of '{}' is not text", name));
    files.insert(plain_name(file, where.get<std::string>()));
  }
  return {files.begin(), files.end()};
}

}  // namespace paceline::train

#include "paceline/train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/step/boxes.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/holdings.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

using OpenFile = std::shared_ptr<const safetensors::File>;

Checkpoint read_file_checkpoint(const std::filesystem::path& file, Check check) {
  const auto opened = std::make_shared<const safetensors::File>(file);
  CheckpointMetadata metadata = unpack_metadata(file.string(), opened->metadata(), opened->tensors(), check);
  Checkpoint checkpoint{.position = metadata.position,
                        .recipe = std::move(metadata.recipe),
                        .network = std::move(metadata.network),
                        .tensors = {},
                        .class_names = std::move(metadata.class_names)};
  for (const safetensors::Tensor& tensor : opened->tensors()) checkpoint.tensors.push_back({tensor.name, map_tensor(opened, tensor)});
  return checkpoint;
}

/// Appends a tensor as its pieces, which must cover it.
void add_pieces(std::vector<NamedTensor>& tensors, const std::string& source, const IndexedTensor& tensor,
                const std::vector<OpenFile>& shards) {
  const auto refuse = [&] { throw DataError(source, fmt::format("the parts of tensor '{}' do not cover it", tensor.name)); };
  std::vector<HeldPart> parts;
  for (const StoredPiece& piece : tensor.pieces) {
    const safetensors::Tensor* found = shards[piece.shard]->find(piece.stored);
    if (!found) refuse();
    parts.push_back({.first = piece.first, .shape = found->shape, .holders = {}, .own = {}});
    NamedTensor item{tensor.name, map_tensor(shards[piece.shard], *found)};
    if (found->shape != tensor.shape) item.box = step::Box{piece.first, tensor.shape};
    if (parts.size() > 1 && tensors.back().tensor.scalar_type() != item.tensor.scalar_type()) refuse();
    tensors.push_back(std::move(item));
  }
  if (!make_a_whole(tensor.shape, parts)) refuse();
}

Checkpoint read_folder_checkpoint(const std::filesystem::path& folder, Check check) {
  const std::string source = (folder / kIndexFile).string();
  CheckpointIndex index = unpack_index(source, read_file(source));
  std::vector<OpenFile> shards;
  std::size_t stored = 0;
  for (const CheckpointIndex::Shard& shard : index.shards) {
    const auto file = folder / shard.file;
    shards.push_back(std::make_shared<const safetensors::File>(file));
    check_shard(file.string(), *shards.back(), shard, check);
    stored += shards.back()->tensors().size();
  }
  Checkpoint checkpoint{.position = index.run.position,
                        .recipe = std::move(index.run.recipe),
                        .network = std::move(index.run.network),
                        .tensors = {},
                        .class_names = std::move(index.run.class_names)};
  for (const IndexedTensor& tensor : index.tensors) add_pieces(checkpoint.tensors, source, tensor, shards);
  if (checkpoint.tensors.size() != stored)
    throw DataError(source, fmt::format("its index names {} tensors, but its files hold {}", checkpoint.tensors.size(), stored));
  return checkpoint;
}

}  // namespace

FileStamp write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  const HostTensors host(checkpoint.tensors);
  const CheckpointMetadata metadata{checkpoint.position, checkpoint.recipe, checkpoint.network, checkpoint.class_names};
  return safetensors::write(file, host.views(), pack_metadata(metadata, host.views()));
}

Checkpoint read_checkpoint(const std::filesystem::path& path, Check check) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? read_folder_checkpoint(path, check) : read_file_checkpoint(path, check);
}

void restore(std::span<const NamedTensor> saved, std::span<const NamedTensor> targets, const std::string& source) {
  std::map<std::string, std::vector<std::int64_t>> by_name;
  for (const NamedTensor& item : saved)
    if (item.held() || !by_name.contains(item.name)) by_name[item.name] = item.shape();
  std::vector<std::string> problems;
  for (const NamedTensor& target : targets) {
    const auto found = by_name.find(target.name);
    if (!target.held() && found != by_name.end()) continue;
    if (found == by_name.end()) problems.push_back(fmt::format("'{}' is missing", target.name));
    else if (found->second != target.shape())
      problems.push_back(
          fmt::format("'{}' has shape {}, expected {}", target.name, graph::to_string(found->second), graph::to_string(target.shape())));
  }
  std::map<std::string, bool> wanted;
  for (const NamedTensor& target : targets) wanted[target.name] = true;
  for (const auto& [name, shape] : by_name)
    if (!wanted.count(name)) problems.push_back(fmt::format("'{}' is not part of this model", name));
  if (!problems.empty()) {
    constexpr std::size_t kShown = 4;
    const std::size_t shown = std::min(kShown, problems.size());
    throw ConfigError(fmt::format("{} does not fit: {}{}", source,
                                  fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
                                  problems.size() > shown ? fmt::format("; and {} more", problems.size() - shown) : ""));
  }
  step::fill(targets, saved);
}

}  // namespace paceline::train

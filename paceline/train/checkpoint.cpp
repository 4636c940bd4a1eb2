#include "paceline/train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

constexpr const char* kExtension = ".safetensors";

}  // namespace

std::filesystem::path checkpoint_file(const std::filesystem::path& folder, std::int64_t step) {
  return folder / fmt::format("step-{:010}{}", step, kExtension);
}

FileStamp write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  const HostTensors host(checkpoint.tensors);
  const CheckpointMetadata metadata{checkpoint.position, checkpoint.recipe, checkpoint.network};
  return safetensors::write(file, host.views(), pack_metadata(metadata, host.views()));
}

Checkpoint read_checkpoint(const std::filesystem::path& file) {
  const safetensors::File opened(file);
  CheckpointMetadata metadata = unpack_metadata(file.string(), opened.metadata(), opened.tensors());
  Checkpoint checkpoint{
      .position = metadata.position, .recipe = std::move(metadata.recipe), .network = std::move(metadata.network), .tensors = {}};
  for (const safetensors::Tensor& tensor : opened.tensors()) checkpoint.tensors.push_back({tensor.name, to_torch(tensor)});
  return checkpoint;
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& path) {
  std::error_code code;
  const auto type_of = [&](const std::filesystem::path& place) {
    const auto type = std::filesystem::status(place, code).type();
    if (type == std::filesystem::file_type::none) throw DataError(place.string(), "cannot look at it: " + code.message());
    return type;
  };
  if (type_of(path) == std::filesystem::file_type::regular) return {path};
  const bool has_own = type_of(path / "checkpoints") == std::filesystem::file_type::directory;
  const auto folder = has_own ? path / "checkpoints" : path;
  std::vector<std::filesystem::path> files;
  if (type_of(folder) != std::filesystem::file_type::directory) return files;
  std::filesystem::directory_iterator item(folder, code);
  for (const std::filesystem::directory_iterator end; !code && item != end; item.increment(code))
    if (item->path().extension() == kExtension && item->path().filename().string().starts_with("step-")) files.push_back(item->path());
  if (code) throw DataError(folder.string(), "cannot read the folder: " + code.message());
  std::sort(files.rbegin(), files.rend());  // steps are padded with zeros: the order of names is the order of steps
  return files;
}

std::pair<std::filesystem::path, Checkpoint> newest_good_checkpoint(const std::filesystem::path& path) {
  const auto files = list_checkpoints(path);
  if (files.empty()) throw DataError(path.string(), "no checkpoint here; give a run's folder or a checkpoint file");
  for (const auto& file : files) {
    try {
      return {file, read_checkpoint(file)};
    } catch (const DataError& problem) {
      if (file == files.back()) throw;
      log::warning("{}; falling back to the checkpoint before it", problem.what());
    }
  }
  throw InternalError("no checkpoint was tried");
}

void prune_checkpoints(const std::filesystem::path& written, std::int64_t keep) try {
  const auto folder = written.parent_path();
  auto files = list_checkpoints(folder);
  keep -= static_cast<std::int64_t>(std::erase(files, written));
  files.erase(files.begin(), files.begin() + std::clamp<std::ptrdiff_t>(keep, 0, std::ssize(files)));
  std::error_code ignored;  // one that cannot be removed does no harm
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored))
    if (item.path().extension() == ".part") files.push_back(item.path());  // a writer was killed
  for (const auto& file : files) std::filesystem::remove(file, ignored);
} catch (const DataError& problem) {
  log::warning("old checkpoints beside {} stay: {}", written.string(), problem.what());
} catch (const std::filesystem::filesystem_error& problem) {
  log::warning("old checkpoints beside {} stay: {}", written.string(), problem.code().message());
}

std::optional<std::filesystem::path> set_aside_behind(std::int64_t step, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> later = list_checkpoints(folder);
  std::erase_if(later, [&](const auto& file) { return file.filename() <= checkpoint_file({}, step).filename(); });
  if (later.empty()) return std::nullopt;
  try {
    auto aside = folder / "aside-1";
    for (int number = 2; !std::filesystem::create_directory(aside); ++number) aside = folder / fmt::format("aside-{}", number);
    for (const auto& file : later) std::filesystem::rename(file, aside / file.filename());
    return aside;
  } catch (const std::filesystem::filesystem_error& problem) {
    throw ConfigError(fmt::format("cannot set the checkpoints behind step {} in {} aside: {}; move them away by hand", step,
                                  folder.string(), problem.code().message()));
  }
}

void restore(std::span<const NamedTensor> saved, std::span<const NamedTensor> targets, const std::string& source) {
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& item : saved) by_name.emplace(item.name, item.tensor);
  std::vector<std::string> problems;
  for (const NamedTensor& target : targets) {
    const auto found = by_name.find(target.name);
    if (found == by_name.end()) problems.push_back(fmt::format("'{}' is missing", target.name));
    else if (found->second.sizes() != target.tensor.sizes())
      problems.push_back(fmt::format("'{}' has shape {} and should have {}", target.name, graph::to_string(found->second.sizes().vec()),
                                     graph::to_string(target.tensor.sizes().vec())));
  }
  std::map<std::string, bool> wanted;
  for (const NamedTensor& target : targets) wanted[target.name] = true;
  for (const auto& [name, tensor] : by_name)
    if (!wanted.count(name)) problems.push_back(fmt::format("'{}' is not part of this model", name));
  if (!problems.empty()) {
    constexpr std::size_t kShown = 4;
    const std::size_t shown = std::min(kShown, problems.size());
    throw ConfigError(fmt::format("{} does not fit: {}{}", source,
                                  fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
                                  problems.size() > shown ? fmt::format("; and {} more", problems.size() - shown) : ""));
  }
  at::NoGradGuard no_grad;
  for (const NamedTensor& target : targets) at::Tensor(target.tensor).copy_(by_name.at(target.name));
}

std::string state_hash(std::span<const NamedTensor> tensors) {
  const HostTensors host(tensors);
  ContentHash hash;
  auto views = host.views();  // in the order of a file, so that the hash of a checkpoint is that of the state
  std::ranges::stable_sort(views, std::greater{}, [](const safetensors::Tensor& tensor) { return safetensors::size_of(tensor.dtype); });
  std::erase_if(views, [](const safetensors::Tensor& tensor) { return tensor.name.find(step::kBookkeeping) != tensor.name.npos; });
  for (const safetensors::Tensor& tensor : views) hash.update(tensor.name).update(graph::to_string(tensor.shape)).update(tensor.data);
  return hash.hex();
}

}  // namespace paceline::train

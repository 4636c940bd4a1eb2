#include "paceline/train/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/base/safetensors.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

constexpr std::string_view kModel = kModelPrefix, kTracked = "num_batches_tracked", kRunningMean = "running_mean";
constexpr std::string_view kWrapped = "module.";

}  // namespace

std::vector<NamedTensor> model_tensors(nn::Model& module) {
  module.take_back();
  std::vector<NamedTensor> tensors;
  for (const tensor::Arena* arena : {&module.arena(), &module.statistics()})
    for (std::size_t i = 0; i < arena->entries().size(); ++i)
      tensors.push_back({std::string(kModel) + arena->entries()[i].name, arena->parameter(i)});
  return tensors;
}

void load_weights(nn::Model& module, const std::filesystem::path& file) {
  // A checkpoint of ours has checksums, a prefix, and other things beside the model; a file from Python has none of them.
  const safetensors::File opened(file);
  std::vector<NamedTensor> saved, targets = model_tensors(module);
  if (is_checkpoint(opened.metadata())) {
    saved = read_checkpoint(file).tensors;
    std::erase_if(saved, [](const NamedTensor& item) { return !item.name.starts_with(kModel); });
  } else {
    for (const safetensors::Tensor& tensor : opened.tensors())
      if (!tensor.name.ends_with(kTracked)) saved.push_back({tensor.name, to_torch(tensor)});
    if (!saved.empty() && std::ranges::all_of(saved, [](const NamedTensor& item) { return item.name.starts_with(kWrapped); }))
      throw ConfigError(
          fmt::format("{} does not fit: all its names begin with '{}', as DistributedDataParallel and DataParallel make them; "
                      "save model.module.state_dict()",
                      file.string(), kWrapped));
    for (NamedTensor& target : targets) target.name.erase(0, kModel.size());  // what does not fit is named as the file does
  }
  for (const NamedTensor& item : saved) {
    const auto is_item = [&](const NamedTensor& target) { return target.name == item.name; };
    if (!item.tensor.is_floating_point() && std::ranges::any_of(targets, is_item))
      throw DataError(file.string(), fmt::format("'{}' holds {} values and the model floating-point ones; save the weights as float32",
                                                 item.name, c10::toString(item.tensor.scalar_type())));
    if (item.tensor.is_floating_point() && !at::isfinite(item.tensor.to(at::kFloat)).all().item<bool>())
      throw DataError(file.string(), fmt::format("'{}' holds values that are not finite, or too large for float32; take weights of before "
                                                 "the run diverged",
                                                 item.name));
  }
  restore(saved, targets, file.string());
  module.refresh();
}

FileStamp export_weights(const Checkpoint& checkpoint, const std::filesystem::path& file) {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& item : checkpoint.tensors) {
    if (!item.name.starts_with(kModel)) continue;
    const std::string name = item.name.substr(kModel.size());
    tensors.push_back({name, item.tensor});
    // PyTorch's strict loading misses this one otherwise.
    if (name.ends_with(kRunningMean))
      tensors.push_back({name.substr(0, name.size() - kRunningMean.size()) + std::string(kTracked),
                         at::scalar_tensor(checkpoint.position.step, at::kLong)});
  }
  const HostTensors host(tensors);
  return safetensors::write(file, host.views(), {{"format", "pt"}, {"network", checkpoint.network}});
}

}  // namespace paceline::train

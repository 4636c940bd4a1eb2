#include "paceline/train/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/safetensors.h"
#include "paceline/step/boxes.h"
#include "paceline/step/finite_tensors.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/gpt2_names.h"
#include "paceline/train/recipe.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

constexpr std::string_view kModel = kModelPrefix, kTracked = "num_batches_tracked", kRunningMean = "running_mean";
constexpr std::string_view kWrapped = "module.";

/// The index file, if `path` is one or a folder with one.
std::optional<std::filesystem::path> index_named(const std::filesystem::path& path) {
  std::error_code none;
  if (path.filename() == kIndexFile) return path;
  if (std::filesystem::is_directory(path, none)) return path / kIndexFile;
  return std::nullopt;
}

/// The tensors of a file from Python, or of several with an index.
std::vector<NamedTensor> foreign_weights(const std::vector<std::filesystem::path>& files) {
  std::vector<NamedTensor> saved;
  for (const auto& file : files) {
    const auto opened = std::make_shared<const safetensors::File>(file);
    for (const safetensors::Tensor& tensor : opened->tensors()) saved.push_back({tensor.name, map_tensor(opened, tensor)});
  }
  return saved;
}

/// Our checkpoints have checksums, a prefix, and more than the model; a file from Python has none of these.
std::vector<NamedTensor> read_weights(const std::filesystem::path& given, bool& own) {
  std::error_code none;
  const bool run = std::filesystem::is_directory(given / "checkpoints", none);
  const std::filesystem::path path = run ? newest_good_checkpoint(given).first : given;
  std::vector<std::filesystem::path> files = {path};
  std::filesystem::path checkpoint = path;
  if (const auto index = index_named(path)) {
    const std::string text = read_file(*index);
    checkpoint = index->parent_path(), own = is_checkpoint_index(text);
    files.clear();
    for (const std::string& file : files_of_index(index->string(), text)) files.push_back(checkpoint / file);
  } else {
    own = is_checkpoint(safetensors::File(path).metadata());
  }
  if (!own) return foreign_weights(files);
  std::vector<NamedTensor> saved = read_checkpoint(checkpoint).tensors;
  std::erase_if(saved, [](const NamedTensor& item) { return !item.name.starts_with(kModel); });
  return saved;
}

}  // namespace

namespace {

/// The ranges of an arena that a rank holds, by their places in it.
std::vector<tensor::Shard::Held> held_by(const tensor::Arena& arena, int rank) {
  std::vector<tensor::Shard::Held> held;
  for (const tensor::OwnedRange& range : arena.owners(tensor::Role::parameter).ranges())
    if (range.held_by(rank)) held.push_back({range.begin, range.end, range.begin});
  return held;
}

/// PyTorch saves a parameter that two modules share under both names, or under one.
void take_alias(std::vector<NamedTensor>& saved, const std::string& alias, const std::string& parameter,
                const std::filesystem::path& file) {
  const at::Tensor other = step::saved_or_none(saved, alias), values = step::saved_or_none(saved, parameter);
  if (!other.defined()) return;
  if (values.defined() && !at::equal(other, values))
    throw ConfigError(
        fmt::format("{} does not fit: '{}' differs from '{}', but model.tied=true has one tensor for both; use model.tied=false",
                    file.string(), alias, parameter));
  std::erase_if(saved, [&](const NamedTensor& item) { return item.name == alias; });
  if (!values.defined()) saved.push_back({parameter, other});
}

/// Converts weights of Hugging Face's GPT-2 to our layout.
void take_gpt2(std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets, const std::filesystem::path& file) {
  from_gpt2_layout(saved);
  const auto has_head = [](const std::vector<NamedTensor>& list) {
    return std::ranges::find(list, "lm_head.weight", &NamedTensor::name) != list.end();
  };
  if (has_head(targets) && !has_head(saved))
    throw ConfigError(
        fmt::format("{} has no lm_head.weight, because the head of GPT-2 is its token embedding; use model.tied=true", file.string()));
}

/// The model, of whose parameters only these ranges are held.
std::vector<NamedTensor> held_tensors(nn::Model& module, int rank, const std::vector<tensor::Shard::Held>& parameters) {
  module.take_back();
  std::vector<NamedTensor> tensors;
  step::show(tensors, module.arena(), std::string(kModel), module.arena().parameters(), parameters);
  step::show(tensors, module.statistics(), std::string(kModel), module.statistics().parameters(), held_by(module.statistics(), rank));
  for (const nn::Untrained& item : module.network().untrained()) {
    const std::string name = std::string(kModel) + item.name;
    tensors.push_back(item.held ? NamedTensor{name, item.tensor} : step::others_hold(name, item.tensor.options()));
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> model_tensors(nn::Model& module, int rank) { return held_tensors(module, rank, held_by(module.arena(), rank)); }

std::vector<NamedTensor> model_tensors_in(nn::Model& module, step::Holders::Range range) {
  return held_tensors(module, 0, {{range.begin, range.end, range.begin}});
}

std::vector<NamedTensor> served_tensors(const tensor::Arena& arena, step::Holders::Range range, const at::Tensor& values) {
  std::vector<NamedTensor> tensors;
  const tensor::Shard::Held held{range.begin, range.end, 0};
  step::show(tensors, arena, std::string(kModel), values, std::span(&held, 1));
  std::erase_if(tensors, [](const NamedTensor& item) { return !item.held(); });
  return tensors;
}

std::vector<NamedTensor> sliced_alone(std::vector<NamedTensor> state, nn::Model& module) {
  std::set<std::string> whole;
  for (const tensor::Arena* arena : {&module.arena(), &module.statistics()})
    for (const tensor::Entry& entry : arena->entries())
      if (!entry.slice || entry.is_private()) whole.insert(entry.name);
  // "model.conv1.weight", "optim.momentum.conv1.weight"
  const auto is_whole = [&](const std::string& name) {
    if (name.starts_with(kModel)) return whole.contains(name.substr(kModel.size()));
    const std::size_t kind = name.starts_with("optim.") ? name.find('.', 6) : std::string::npos;
    return kind != std::string::npos && whole.contains(name.substr(kind + 1));
  };
  std::vector<NamedTensor> rest;
  for (NamedTensor& item : state) {
    if (!is_whole(item.name)) rest.push_back(std::move(item));
    else if (rest.empty() || rest.back().name != item.name) rest.push_back(step::others_hold(item.name, item.tensor.options()));
  }
  return rest;
}

void load_weights(nn::Model& module, const std::filesystem::path& file) {
  bool own = false;
  std::vector<NamedTensor> saved = read_weights(file, own), targets = model_tensors(module);
  if (!own) {
    if (!saved.empty() && std::ranges::all_of(saved, [](const NamedTensor& item) { return item.name.starts_with(kWrapped); }))
      throw ConfigError(
          fmt::format("{} does not fit: all its names begin with '{}', as DistributedDataParallel and DataParallel make them; "
                      "save model.module.state_dict()",
                      file.string(), kWrapped));
    for (NamedTensor& target : targets) target.name.erase(0, kModel.size());  // errors use the names of the file
    if (has_gpt2_layout(saved)) take_gpt2(saved, targets, file);
  }
  for (const graph::Alias& alias : module.network().aliases()) {
    const std::string prefix(own ? kModel : std::string_view());
    take_alias(saved, prefix + alias.name, prefix + alias.parameter, file);
  }
  // Counters of batches: the built-in networks have none, and a file may lack them.
  const auto lacks = [](const std::vector<NamedTensor>& list, const NamedTensor& item) {
    return std::ranges::find(list, item.name, &NamedTensor::name) == list.end();
  };
  std::erase_if(saved, [&](const NamedTensor& item) { return item.name.ends_with(kTracked) && lacks(targets, item); });
  std::erase_if(targets, [&](const NamedTensor& item) { return item.name.ends_with(kTracked) && lacks(saved, item); });
  for (const NamedTensor& item : saved) {
    const auto takes_numbers = [&](const NamedTensor& target) { return target.name == item.name && target.tensor.is_floating_point(); };
    if (!item.tensor.is_floating_point() && std::ranges::any_of(targets, takes_numbers))
      throw DataError(file.string(),
                      fmt::format("'{}' holds {} values, but the model needs floating-point ones; save the weights as float32", item.name,
                                  c10::toString(item.tensor.scalar_type())));
    if (item.tensor.is_floating_point() && !step::all_finite(item.tensor.to(at::kFloat)))
      throw DataError(file.string(),
                      fmt::format("'{}' has values that are not finite, or too large for float32; use weights from before the run diverged",
                                  item.name));
  }
  restore(saved, targets, file.string());
  module.refresh();
}

namespace {

/// Other names that PyTorch's strict loading asks for.
std::vector<graph::Alias> aliases_in(const Checkpoint& checkpoint) {
  if (checkpoint.recipe.find("tied") == std::string::npos) return {};  // written by a version without aliases, and perhaps with other keys
  Recipe recipe;
  recipe.config().load_text(checkpoint.recipe, "the checkpoint's recipe");
  if (!recipe.model.tied || recipe.model.network != checkpoint.network) return {};
  return graph::make_graph(recipe.model).aliases();
}

/// The model under PyTorch's names.
std::vector<NamedTensor> exported(const Checkpoint& checkpoint) {
  std::vector<NamedTensor> tensors;
  const std::string* last = nullptr;
  for (const NamedTensor& item : checkpoint.tensors) {
    if (!item.name.starts_with(kModel) || (last && *last == item.name)) continue;  // another piece of it
    last = &item.name;
    const std::string name = item.name.substr(kModel.size());
    tensors.push_back({name, step::saved_or_none(checkpoint.tensors, item.name)});
    // PyTorch's strict loading would report this one as missing.
    if (!name.ends_with(kRunningMean)) continue;
    const std::string tracked = name.substr(0, name.size() - kRunningMean.size()) + std::string(kTracked);
    if (!step::saved_shape(checkpoint.tensors, std::string(kModel) + tracked))
      tensors.push_back({tracked, at::scalar_tensor(checkpoint.position.step, at::kLong)});
  }
  for (const graph::Alias& alias : aliases_in(checkpoint)) tensors.push_back({alias.name, step::find_saved(tensors, alias.parameter)});
  return tensors;
}

}  // namespace

std::int64_t export_weights(const Checkpoint& checkpoint, const std::filesystem::path& target, std::int64_t largest, Names names) {
  std::vector<NamedTensor> tensors = exported(checkpoint);
  if (names == Names::gpt2) to_gpt2_layout(tensors);
  const safetensors::Metadata metadata = {{"format", "pt"}, {"network", checkpoint.network}};
  std::error_code none;
  if (target.has_filename() && !std::filesystem::is_directory(target, none))
    return safetensors::write(target, HostTensors(tensors).views(), metadata).bytes;

  ensure_writable_folder(target);
  std::vector<std::vector<NamedTensor>> parts(1);
  std::int64_t bytes = 0, all = 0, written = 0;
  for (const NamedTensor& item : tensors) {
    const auto size = static_cast<std::int64_t>(item.tensor.nbytes());
    if (bytes > 0 && bytes + size > largest) parts.emplace_back(), bytes = 0;
    parts.back().push_back(item), bytes += size, all += size;
  }
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    written += safetensors::write(target / name, HostTensors(parts[i]).views(), metadata).bytes;
    for (const NamedTensor& item : parts[i]) map[item.name] = name;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", all}}}, {"weight_map", map}};
  return written + write_atomically(target / kIndexFile, index.dump(2) + "\n").bytes;
}

}  // namespace paceline::train

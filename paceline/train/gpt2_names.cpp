#include "paceline/train/gpt2_names.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/base/error.h"

namespace paceline::train {
namespace {

using step::NamedTensor;

constexpr std::string_view kTransformer = "transformer.", kHead = "lm_head.weight", kFused = ".attn.c_attn.weight";
constexpr std::array<std::string_view, 4> kProducts = {kFused, ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"};
constexpr std::array<std::string_view, 2> kMasks = {".attn.bias", ".attn.masked_bias"};

bool ends_with_one(const std::string& name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

void transpose_products(std::vector<NamedTensor>& tensors) {
  for (NamedTensor& item : tensors)
    if (ends_with_one(item.name, kProducts) && item.tensor.dim() == 2) item.tensor = item.tensor.t().contiguous();
}

bool is_of_gpt2(const std::string& name) {
  if (name == kHead) return true;
  if (!name.starts_with(kTransformer)) return false;
  const std::string_view rest = std::string_view(name).substr(kTransformer.size());
  if (rest == "wte.weight" || rest == "wpe.weight" || rest == "ln_f.weight" || rest == "ln_f.bias") return true;
  if (!rest.starts_with("h.")) return false;
  const std::size_t dot = rest.find('.', 2);
  constexpr std::array<std::string_view, 6> kLayers = {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"};
  return dot != std::string_view::npos && std::ranges::any_of(kLayers, [&](std::string_view layer) {
           const std::string_view own = rest.substr(dot + 1);
           return own.starts_with(layer) && (own.substr(layer.size()) == ".weight" || own.substr(layer.size()) == ".bias");
         });
}

}  // namespace

bool has_gpt2_layout(std::span<const NamedTensor> tensors) {
  return std::ranges::any_of(tensors, [](const NamedTensor& item) {
    return item.name.ends_with(kFused) && item.tensor.dim() == 2 && item.tensor.size(1) == 3 * item.tensor.size(0);
  });
}

void from_gpt2_layout(std::vector<NamedTensor>& tensors) {
  std::erase_if(tensors, [](const NamedTensor& item) { return ends_with_one(item.name, kMasks); });
  transpose_products(tensors);
  for (NamedTensor& item : tensors)
    if (!item.name.starts_with(kTransformer) && item.name != kHead) item.name.insert(0, kTransformer);
}

void to_gpt2_layout(std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& item : tensors)
    if (!is_of_gpt2(item.name))
      throw ConfigError(
          fmt::format("'{}' is not a tensor of GPT-2; --names gpt2 is for network 'gpt' without experts, use --names pytorch", item.name));
  transpose_products(tensors);
}

}  // namespace paceline::train

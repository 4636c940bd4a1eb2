#include "paceline/step/updater.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {
namespace {

std::vector<optim::Segment> segments_of(const tensor::Arena& arena) {
  if (arena.parameters().scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("Paceline's optimizers update parameters in float, and these are in {}; call module->to(torch::kFloat) before adopt(), "
                    "or use an optimizer of torch::optim",
                    c10::toString(arena.parameters().scalar_type())));
  std::vector<optim::Segment> segments;
  for (const tensor::Entry& entry : arena.entries()) segments.push_back({entry.offset, entry.count, entry.decay});
  return segments;
}

}  // namespace

Updater::Updater(tensor::Arena& arena, const optim::OptimConfig& config)
    : arena_(arena), optimizer_(config, segments_of(arena), arena.length(), arena.parameters().is_cuda()) {
  optim::RangeOptimizer::Memory memory{.parameters = arena.parameters().data_ptr<float>()};
  if (clips()) {
    squared_norm_ = at::zeros({1}, arena.parameters().options().dtype(at::kDouble));
    memory.squared_norm = squared_norm_.data_ptr<double>();
  }
  for (std::size_t i = 0; i < optimizer_.state_names().size(); ++i) {
    state_.push_back(tensor::allocate_pages(arena.length(), arena.parameters().options()));
    memory.state.push_back(state_.back().data_ptr<float>());
  }
  optimizer_.bind(std::move(memory));
}

void Updater::begin_step(const optim::Hyper& hyper) {
  arena_.take_back();
  hyper_ = hyper;
  optimizer_.set_hyper(hyper, stream());
}

void Updater::update_all() { optimizer_.update(gradients(), hyper_, stream()); }

void Updater::update(std::int64_t begin, std::int64_t end) { optimizer_.update(gradients(), begin, end, hyper_, stream()); }

float* Updater::gradients() const { return arena_.gradients().data_ptr<float>(); }

void* Updater::stream() const { return tensor::current_stream(arena_.parameters().device()); }

std::vector<NamedTensor> Updater::state() const {
  std::vector<NamedTensor> result;
  const auto names = optimizer_.state_names();
  for (std::size_t s = 0; s < names.size(); ++s)
    for (std::size_t i = 0; i < arena_.entries().size(); ++i)
      result.push_back({fmt::format("optim.{}.{}", names[s], arena_.entries()[i].name), arena_.view(state_[s], i)});
  return result;
}

void Updater::load(std::span<const NamedTensor> saved) {
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const NamedTensor& item : saved) by_name.emplace(item.name, item.tensor);
  std::vector<NamedTensor> mine = state();
  for (const NamedTensor& item : mine) {
    const auto found = by_name.find(item.name);
    if (found == by_name.end())
      throw ConfigError(fmt::format("the checkpoint has no '{}', which this optimizer needs; resume with the same [optim]", item.name));
    if (found->second.sizes() != item.tensor.sizes())
      throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", item.name));
  }
  for (const auto& [name, tensor] : by_name)
    if (name.starts_with("optim.") && std::ranges::find(mine, name, &NamedTensor::name) == mine.end())
      throw ConfigError(fmt::format("'{}' of the checkpoint is not part of this optimizer; resume with the same [optim]", name));
  for (NamedTensor& item : mine) item.tensor.copy_(by_name.at(item.name));
}

}  // namespace paceline::step

#include "paceline/step/updater.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {

Updater::Updater(tensor::Arena& arena, const optim::OptimConfig& config) : arena_(arena) {
  if (arena.parameters().scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("Paceline's optimizers update parameters in float, and these are in {}; call module->to(torch::kFloat) before adopt(), "
                    "or use an optimizer of torch::optim",
                    c10::toString(arena.parameters().scalar_type())));
  for (const tensor::Entry& entry : arena.entries()) segments_.push_back({entry.offset, entry.count, entry.decay || config.decay_norms});
  if (arena.parameters().is_cuda()) {
    auto made = optim::make_cuda_optimizer(config, segments_);
    cuda_ = made.get();
    optimizer_ = std::move(made);
  } else {
    optimizer_ = optim::make_optimizer(config);
  }
  if (config.clip_norm > 0) {
    squared_norm_ = at::zeros({1}, arena.parameters().options().dtype(at::kDouble));
    buffers_.squared_norm = squared_norm_.data_ptr<double>();
  }
  for (std::size_t i = 0; i < optimizer_->state_names().size(); ++i)
    state_.push_back(tensor::allocate_pages(arena.length(), arena.parameters().options()));
  buffers_.parameters = arena.parameters().data_ptr<float>();
  buffers_.gradients = arena.gradients().data_ptr<float>();
  for (at::Tensor& buffer : state_) buffers_.state.push_back(buffer.data_ptr<float>());
}

void Updater::begin_step(const optim::Hyper& hyper) {
  arena_.take_back();
  hyper_ = hyper;
  if (cuda_) cuda_->set_hyper(hyper, tensor::current_stream(arena_.parameters().device()));
}

void Updater::update_all() {
  buffers_.stream = tensor::current_stream(arena_.parameters().device());
  if (squared_norm_.defined()) {  // the update clips by it
    auto* place = squared_norm_.data_ptr<double>();
    if (cuda_) cuda_->squared_norm(buffers_.gradients, segments_, place, buffers_.stream);
    else *place = optim::squared_norm(buffers_.gradients, arena_.length());
  }
  optimizer_->update(buffers_, segments_, hyper_, /*zero_gradients=*/false);  // the next backward pass overwrites them
}

void Updater::update(std::int64_t begin, std::int64_t end) {
  auto first = std::ranges::upper_bound(segments_, begin, {}, [](const optim::Segment& s) { return s.offset + s.count; });
  std::vector<optim::Segment> range;
  for (; first != segments_.end() && first->offset < end; ++first) {
    optim::Segment cut = *first;
    cut.offset = std::max(cut.offset, begin);
    cut.count = std::min(first->offset + first->count, end) - cut.offset;
    ensure(elementwise() || cut.count == first->count, "a tensor whose norm decides is updated whole");
    range.push_back(cut);
  }
  optimizer_->update(buffers_, range, hyper_, /*zero_gradients=*/false);
}

std::vector<NamedTensor> Updater::state() const {
  std::vector<NamedTensor> result;
  const auto names = optimizer_->state_names();
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

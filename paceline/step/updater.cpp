#include "paceline/step/updater.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/step/finite.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {
namespace {

bool stores_16_bits(const tensor::Arena& arena) {
  return arena.parameters().scalar_type() == at::kHalf || arena.parameters().scalar_type() == at::kBFloat16;
}

std::vector<optim::Segment> segments_of(const tensor::Arena& arena) {
  if (!stores_16_bits(arena) && arena.parameters().scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("Paceline's optimizers update parameters in float, and these are in {}; call module->to(torch::kFloat) before adopt(), "
                    "or use an optimizer of torch::optim",
                    c10::toString(arena.parameters().scalar_type())));
  std::vector<optim::Segment> segments;
  for (const tensor::Entry& entry : arena.entries()) segments.push_back({entry.offset, entry.count, entry.decay});
  return segments;
}

}  // namespace

Updater::Updater(tensor::Arena& arena, const optim::OptimConfig& config, const comm::Mesh* mesh)
    : arena_(arena),
      mesh_(mesh),
      comm_(mesh ? &mesh->data() : nullptr),
      optimizer_(config, segments_of(arena), arena.length(), arena.parameters().is_cuda()),
      owners_(arena.owners(tensor::Role::moment)),
      shard_(owners_, rank(), tensor::Arena::kAlignment),
      rounds_(stores_16_bits(arena)) {
  if (clips()) squared_norm_ = at::zeros({1}, arena.parameters().options().dtype(at::kDouble));
  for (std::size_t i = 0; i < names().size(); ++i) state_.push_back(arena.allocate(role(i), shard_));
  fill_masters();
  bind();
}

std::vector<std::string> Updater::names() const {
  std::vector<std::string> names = optimizer_.state_names();
  if (rounds_) names.emplace_back("master");
  return names;
}

void Updater::bind() {
  const tensor::Owners& of_gradients = arena_.owners(tensor::Role::gradient);
  gradients_ = at::Tensor();
  if (!of_gradients.shared()) ensure(of_gradients == owners_, "whoever updates an element holds its gradient");
  if (!of_gradients.shared() || rounds_) gradients_ = arena_.allocate(rounds_ ? tensor::Role::master : tensor::Role::gradient, shard_);
  const at::Tensor& parameters = rounds_ ? state_.back() : arena_.parameters();
  optim::RangeOptimizer::Memory memory{
      .parameters = parameters.data_ptr<float>(), .placed_parameters = rounds_, .placed_gradients = gradients_.defined()};
  if (squared_norm_.defined()) memory.squared_norm = squared_norm_.data_ptr<double>();
  for (std::size_t i = 0; i < optimizer_.state_names().size(); ++i) memory.state.push_back(state_[i].data_ptr<float>());
  optimizer_.bind(std::move(memory));
  if (owners_.shared()) return;
  std::vector<optim::Stretch> stretches;
  for (const tensor::Shard::Held& held : shard_.held()) stretches.push_back({held.begin, held.end, held.place});
  optimizer_.cut(stretches);
}

void Updater::begin_step(const optim::Hyper& hyper) {
  arena_.take_back();
  hyper_ = hyper;
  optimizer_.set_hyper(hyper, stream());
}

void Updater::keep_gradients(std::int64_t begin, std::int64_t end, bool add) {
  for (const tensor::Shard::Held& held : shard_.within(begin, end)) {
    const std::int64_t count = held.end - held.begin;
    const at::Tensor from = arena_.gradients().narrow(0, held.begin, count);
    at::Tensor own = gradients_.narrow(0, held.place, count);
    if (add) own.add_(from);
    else own.copy_(from);
  }
}

bool Updater::meets() const {
  const bool norms = clips() || !elementwise();
  return norms && mesh_ &&
         (!owners_.shared() || arena_.has_private() || mesh_->tensor().size() > 1 || (clips() && mesh_->pipeline().size() > 1));
}

void Updater::update_all() {
  convert_gradients(0, arena_.length());
  measure_norm();
  if (!elementwise() && meets()) {
    update_adapted();
  } else {
    for (const tensor::Shard::Held& held : shard_.held())
      optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream(), /*clipped=*/clips());
  }
  round(0, arena_.length());
}

void Updater::update(std::int64_t begin, std::int64_t end) {
  convert_gradients(begin, end);
  for (const tensor::Shard::Held& held : shard_.within(begin, end))
    optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream());
  round(begin, end);
}

void Updater::convert_gradients(std::int64_t begin, std::int64_t end) {
  if (rounds_ && arena_.owners(tensor::Role::gradient).shared()) keep_gradients(begin, end, /*add=*/false);
}

void Updater::round(std::int64_t begin, std::int64_t end) {
  if (!rounds_) return;
  for (const tensor::Shard::Held& held : shard_.within(begin, end)) {
    const std::int64_t count = held.end - held.begin;
    arena_.parameters().narrow(0, held.begin, count).copy_(state_.back().narrow(0, held.place, count));
  }
}

void Updater::fill_masters() {
  if (!rounds_) return;
  for (const tensor::Shard::Held& held : shard_.held()) {
    const std::int64_t count = held.end - held.begin;
    state_.back().narrow(0, held.place, count).copy_(arena_.parameters().narrow(0, held.begin, count));
  }
}

bool Updater::finite() {
  convert_gradients(0, arena_.length());
  return gradients_.numel() == 0 || all_finite(gradients_);
}

float* Updater::gradients() const { return (gradients_.defined() ? gradients_ : arena_.gradients()).data_ptr<float>(); }

void* Updater::stream() const { return tensor::current_stream(arena_.parameters().device()); }

}  // namespace paceline::step

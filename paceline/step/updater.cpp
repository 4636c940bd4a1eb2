#include "paceline/step/updater.h"

#include <ATen/ATen.h>

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

Updater::Updater(tensor::Arena& arena, const optim::OptimConfig& config, comm::Communicator* comm)
    : arena_(arena),
      comm_(comm),
      optimizer_(config, segments_of(arena), arena.length(), arena.parameters().is_cuda()),
      owners_(arena.owners(tensor::Role::moment)),
      shard_(owners_, rank(), tensor::Arena::kAlignment) {
  if (clips()) squared_norm_ = at::zeros({1}, arena.parameters().options().dtype(at::kDouble));
  for (std::size_t i = 0; i < optimizer_.state_names().size(); ++i) state_.push_back(arena.allocate(tensor::Role::moment, shard_));
  bind();
}

void Updater::bind() {
  optim::RangeOptimizer::Memory memory{.parameters = arena_.parameters().data_ptr<float>()};
  if (squared_norm_.defined()) memory.squared_norm = squared_norm_.data_ptr<double>();
  for (at::Tensor& state : state_) memory.state.push_back(state.data_ptr<float>());
  optimizer_.bind(std::move(memory));
}

void Updater::begin_step(const optim::Hyper& hyper) {
  arena_.take_back();
  hyper_ = hyper;
  optimizer_.set_hyper(hyper, stream());
}

void Updater::update_all() {
  optimizer_.measure_norm(gradients(), stream());
  for (const tensor::Shard::Held& held : shard_.held())
    optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream(), /*clipped=*/clips());
}

void Updater::update(std::int64_t begin, std::int64_t end) {
  for (const tensor::Shard::Held& held : shard_.within(begin, end))
    optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream());
}

float* Updater::gradients() const { return arena_.gradients().data_ptr<float>(); }

void* Updater::stream() const { return tensor::current_stream(arena_.parameters().device()); }

}  // namespace paceline::step

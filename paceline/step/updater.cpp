#include "paceline/step/updater.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/step/finite_tensors.h"
#include "paceline/tensor/read_back.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {
namespace {

bool stores_16_bits(const tensor::Arena& arena) {
  return arena.parameters().scalar_type() == at::kHalf || arena.parameters().scalar_type() == at::kBFloat16;
}

std::vector<optim::Segment> segments_of(const tensor::Arena& arena) {
  if (!stores_16_bits(arena) && arena.parameters().scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("Paceline's optimizers need float parameters, but these are {}; call module->to(torch::kFloat) before adopt(), or use "
                    "an optimizer of torch::optim",
                    c10::toString(arena.parameters().scalar_type())));
  std::vector<optim::Segment> segments;
  for (const tensor::Entry& entry : arena.entries()) segments.push_back({entry.offset, entry.count, entry.decay});
  return segments;
}

}  // namespace

Updater::Updater(tensor::Arena& arena, const optim::OptimConfig& config, const comm::Mesh* mesh, bool offload)
    : arena_(arena),
      mesh_(mesh),
      comm_(mesh ? &mesh->data() : nullptr),
      optimizer_(config, segments_of(arena), arena.length(), arena.parameters().is_cuda() && !offload),
      owners_(arena.owners(tensor::Role::moment)),
      shard_(owners_, rank(), tensor::Arena::kAlignment),
      rounds_(stores_16_bits(arena)),
      offload_(offload) {
  const at::TensorOptions options = arena.parameters().options().dtype(at::kDouble);
  const at::TensorOptions sums = offload ? options.device(at::kCPU) : options;
  if (clips()) squared_norm_ = at::zeros({1}, sums);
  if (!elementwise()) squares_ = at::zeros({std::ssize(arena.entries()), 2}, sums);
  for (std::size_t i = 0; i < names().size(); ++i) state_.push_back(allocate(role(i), shard_));
  fill_masters();
  bind();
}

std::vector<std::string> Updater::names() const {
  std::vector<std::string> names = optimizer_.state_names();
  if (has_masters()) names.emplace_back("master");
  return names;
}

at::Tensor Updater::allocate(tensor::Role role, const tensor::Shard& shard) const {
  return arena_.allocate(role, shard, offload_ ? tensor::Arena::Place::host : tensor::Arena::Place::device);
}

void Updater::bind() {
  const tensor::Owners& of_gradients = arena_.owners(tensor::Role::gradient);
  gradients_ = at::Tensor();
  if (!of_gradients.shared()) ensure(of_gradients == owners_, "the rank that updates an element holds its gradient");
  const bool masters = has_masters(), copies = copies_gradients();
  if (!of_gradients.shared() || copies) gradients_ = allocate(copies ? tensor::Role::master : tensor::Role::gradient, shard_);
  const at::Tensor& parameters = masters ? state_.back() : arena_.parameters();
  optim::RangeOptimizer::Memory memory{
      .parameters = parameters.data_ptr<float>(), .placed_parameters = masters, .placed_gradients = gradients_.defined()};
  if (squared_norm_.defined()) memory.squared_norm = squared_norm_.data_ptr<double>();
  for (std::size_t i = 0; i < optimizer_.state_names().size(); ++i) memory.state.push_back(state_[i].data_ptr<float>());
  optimizer_.bind(std::move(memory));
  share_squares();
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
    if (add) own.add_(from.to(own.device()));
    else own.copy_(from);
  }
}

bool Updater::meets() const {
  const bool stages = mesh_ && mesh_->pipeline().size() > 1;
  return clips() ? shares_tensors() || stages : !elementwise() && shares_tensors();
}

bool Updater::shares_tensors() const { return mesh_ && (!owners_.shared() || arena_.has_private() || mesh_->tensor().size() > 1); }

void Updater::update_all() {
  if (offload_ && !clips() && elementwise() && arena_.owners(tensor::Role::gradient).shared()) return update_beside_copies();
  convert_gradients(0, arena_.length());
  measure_norm();
  if (!elementwise() && shares_tensors()) {
    update_adapted();
  } else {
    for (const tensor::Shard::Held& held : shard_.held())
      optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream(), /*clipped=*/clips());
  }
  round(0, arena_.length());
}

// All gradients are being copied down before the first piece is updated, and pieces follow on the way up: the device is idle while the host
// computes, but not the link between them. The next pass is enqueued after the last piece, and its gradients after the pass; so nothing
// overwrites what is still being copied.
void Updater::update_beside_copies() {
  constexpr std::int64_t kPiece = 1 << 22;  // elements
  struct Piece {
    tensor::Shard::Held held;
    tensor::QueueMark arrived;
  };
  std::vector<Piece> pieces;
  for (const tensor::Shard::Held& held : shard_.held())
    for (std::int64_t begin = held.begin; begin < held.end; begin += kPiece) {
      Piece& piece = pieces.emplace_back();
      piece.held = {begin, std::min(begin + kPiece, held.end), held.place + begin - held.begin};
      const std::int64_t count = piece.held.end - begin;
      gradients_.narrow(0, piece.held.place, count).copy_(arena_.gradients().narrow(0, begin, count), /*non_blocking=*/true);
      piece.arrived.set(arena_.parameters().device());
    }
  for (const auto& [held, arrived] : pieces) {
    arrived.wait();
    optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream());
    const std::int64_t count = held.end - held.begin;
    arena_.parameters().narrow(0, held.begin, count).copy_(state_.back().narrow(0, held.place, count), /*non_blocking=*/true);
  }
}

void Updater::update(std::int64_t begin, std::int64_t end) {
  convert_gradients(begin, end);
  for (const tensor::Shard::Held& held : shard_.within(begin, end))
    optimizer_.update(gradients(), {held.begin, held.end, held.place}, hyper_, stream());
  round(begin, end);
}

void Updater::convert_gradients(std::int64_t begin, std::int64_t end) {
  if (copies_gradients() && arena_.owners(tensor::Role::gradient).shared()) keep_gradients(begin, end, /*add=*/false);
}

void Updater::round(std::int64_t begin, std::int64_t end) {
  if (!has_masters()) return;
  for (const tensor::Shard::Held& held : shard_.within(begin, end)) {
    const std::int64_t count = held.end - held.begin;
    arena_.parameters().narrow(0, held.begin, count).copy_(state_.back().narrow(0, held.place, count));
  }
}

void Updater::fill_masters() {
  if (!has_masters()) return;
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

void* Updater::stream() const { return offload_ ? nullptr : tensor::current_stream(arena_.parameters().device()); }

}  // namespace paceline::step

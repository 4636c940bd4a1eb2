// The Updater's norms, where ranks share the tensors that they are norms of.
#include <ATen/ATen.h>

#include "paceline/step/updater.h"

namespace paceline::step {

// Each element counts once: an owner counts what it holds, tensor rank 0 what all tensor ranks hold alike, and every stage its own.
void Updater::measure_norm() {
  if (!clips()) return;
  if (!meets()) return optimizer_.measure_norm(gradients(), stream());
  double sum = 0;
  for (const tensor::Entry& entry : arena_.entries()) {
    if (!entry.slice && mesh_->tensor().rank() > 0) continue;
    for (const tensor::Shard::Held& held : shard_.within(entry.offset, entry.offset + entry.count)) sum += squared_norm_of(held);
  }
  std::vector<double> squares = {sum};
  if (!owners_.shared()) comm_->run(comm::allreduce(squares));
  if (mesh_->tensor().size() > 1) mesh_->tensor().run(comm::allreduce(squares));
  if (mesh_->pipeline().size() > 1) mesh_->pipeline().run(comm::allreduce(squares));
  squared_norm_.fill_(squares[0]);
}

double Updater::squared_norm_of(const tensor::Shard::Held& held) const {
  const std::int64_t count = held.end - held.begin;
  const at::Tensor values =
      gradients_.defined() ? gradients_.narrow(0, held.place, count) : arena_.gradients().narrow(0, held.begin, count);
  if (values.is_cpu()) return optim::squared_norm(values.data_ptr<float>(), count);
  return values.to(at::kDouble).square().sum().item<double>();
}

void Updater::update_adapted() {
  std::vector<optim::Squares> squares(arena_.entries().size());
  const auto stretch = [](const tensor::Shard::Held& held) { return optim::Stretch{held.begin, held.end, held.place}; };
  for (const tensor::Shard::Held& held : shard_.held()) optimizer_.measure(gradients(), stretch(held), hyper_, clips(), squares);
  sum_over_ranks(squares);
  for (const tensor::Shard::Held& held : shard_.held()) optimizer_.move(gradients(), stretch(held), hyper_, clips(), squares);
}

void Updater::sum_over_ranks(std::span<optim::Squares> squares) const {
  static_assert(sizeof(optim::Squares) == 2 * sizeof(double));
  if (!owners_.shared()) comm_->run(comm::allreduce(comm::Buffer(&squares.data()->parameters, 2 * std::ssize(squares))));
  if (mesh_->tensor().size() == 1) return;
  std::vector<double> sliced;
  for (std::size_t i = 0; i < squares.size(); ++i)
    if (arena_.entries()[i].slice) sliced.insert(sliced.end(), {squares[i].parameters, squares[i].others});
  mesh_->tensor().run(comm::allreduce(sliced));
  auto next = sliced.begin();
  for (std::size_t i = 0; i < squares.size(); ++i)
    if (arena_.entries()[i].slice) squares[i].parameters = *next++, squares[i].others = *next++;
}

}  // namespace paceline::step

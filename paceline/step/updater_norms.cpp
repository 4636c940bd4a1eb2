// The Updater's norms of tensors that ranks share.
#include <ATen/ATen.h>

#include "paceline/step/updater.h"

namespace paceline::step {

namespace {

bool sliced_by_tensor_rank(const tensor::Entry& entry) { return entry.slice && entry.slice->across == tensor::Across::tensor; }

/// Sums over the ranks of `axis` the values of the entries that `counts` selects.
template <class Counts>
void sum_of_entries(std::span<optim::Squares> squares, comm::Communicator& axis, const std::vector<tensor::Entry>& entries,
                    const Counts& counts) {
  std::vector<double> values;
  for (std::size_t i = 0; i < squares.size(); ++i)
    if (counts(entries[i])) values.insert(values.end(), {squares[i].parameters, squares[i].others});
  if (values.empty() || axis.size() == 1) return;
  axis.run(comm::allreduce(values));
  auto next = values.begin();
  for (std::size_t i = 0; i < squares.size(); ++i)
    if (counts(entries[i])) squares[i].parameters = *next++, squares[i].others = *next++;
}

}  // namespace

// Each element counts once: an owner counts what it holds, tensor rank 0 what is equal on all tensor ranks, and every stage its own.
void Updater::measure_norm() {
  if (!clips()) return;
  if (!meets()) return optimizer_.measure_norm(gradients(), stream());
  double common = 0;                  // to all data-parallel workers, unless they share them out
  std::vector<double> squares = {0};  // values that only one worker has
  for (const tensor::Entry& entry : arena_.entries()) {
    if (!sliced_by_tensor_rank(entry) && mesh_->tensor().rank() > 0) continue;
    double& sum = entry.is_private() || !owners_.shared() ? squares[0] : common;
    for (const tensor::Shard::Held& held : shard_.within(entry.offset, entry.offset + entry.count)) sum += squared_norm_of(held);
  }
  if (!owners_.shared() || arena_.has_private()) comm_->run(comm::allreduce(squares));
  squares[0] += common;
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
  const bool shared_out = !owners_.shared();
  sum_of_entries(squares, *comm_, arena_.entries(), [&](const tensor::Entry& entry) { return shared_out || entry.is_private(); });
  sum_of_entries(squares, mesh_->tensor(), arena_.entries(), sliced_by_tensor_rank);
}

}  // namespace paceline::step

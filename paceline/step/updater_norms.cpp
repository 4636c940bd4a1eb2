// The Updater's norms of tensors that ranks share.
#include <ATen/ATen.h>

#include "paceline/step/updater.h"

namespace paceline::step {

namespace {

bool sliced_by_tensor_rank(const tensor::Entry& entry) { return entry.slice && entry.slice->across == tensor::Across::tensor; }

}  // namespace

// Each element counts once: an owner counts what it holds, tensor rank 0 what is equal on all tensor ranks, and every stage its own. On a
// GPU, the host neither reads the sums nor waits for them; the same holds for the squares of LARS and LAMB below.
void Updater::measure_norm() {
  if (!clips()) return;
  if (!meets()) return optimizer_.measure_norm(gradients(), stream());
  const at::Tensor common = at::zeros_like(squared_norm_);   // to all data-parallel workers, unless they share them out
  const at::Tensor squares = at::zeros_like(squared_norm_);  // of values that only one worker has
  for (const tensor::Entry& entry : arena_.entries()) {
    if (!sliced_by_tensor_rank(entry) && mesh_->tensor().rank() > 0) continue;
    const at::Tensor& sum = entry.is_private() || !owners_.shared() ? squares : common;
    for (const tensor::Shard::Held& held : shard_.within(entry.offset, entry.offset + entry.count)) add_squared_norm(held, sum);
  }
  if (!owners_.shared() || arena_.has_private()) comm_->run(comm::allreduce(squares));
  squares.add_(common);
  if (mesh_->tensor().size() > 1) mesh_->tensor().run(comm::allreduce(squares));
  if (mesh_->pipeline().size() > 1) mesh_->pipeline().run(comm::allreduce(squares));
  squared_norm_.copy_(squares);
}

void Updater::add_squared_norm(const tensor::Shard::Held& held, const at::Tensor& sum) const {
  const std::int64_t count = held.end - held.begin;
  const at::Tensor values =
      gradients_.defined() ? gradients_.narrow(0, held.place, count) : arena_.gradients().narrow(0, held.begin, count);
  if (values.is_cpu()) *sum.data_ptr<double>() += optim::squared_norm(values.data_ptr<float>(), count);
  else sum.add_(values.to(at::kDouble).square().sum());
}

void Updater::share_squares() {
  shared_squares_.clear();
  if (elementwise() || !mesh_) return;
  const auto share = [&](comm::Communicator& axis, const auto& shares) {
    std::vector<std::int64_t> entries;
    for (std::size_t i = 0; i < arena_.entries().size(); ++i)
      if (shares(arena_.entries()[i])) entries.push_back(static_cast<std::int64_t>(i));
    if (axis.size() == 1 || entries.empty()) return;
    const at::Tensor sums = at::empty({std::ssize(entries), 2}, squares_.options());
    shared_squares_.push_back({&axis, at::tensor(entries).to(squares_.device()), sums});
  };
  share(*comm_, [&](const tensor::Entry& entry) { return !owners_.shared() || entry.is_private(); });
  share(mesh_->tensor(), sliced_by_tensor_rank);
}

void Updater::update_adapted() {
  auto* const squares = reinterpret_cast<optim::Squares*>(squares_.zero_().data_ptr<double>());
  const auto stretch = [](const tensor::Shard::Held& held) { return optim::Stretch{held.begin, held.end, held.place}; };
  for (const tensor::Shard::Held& held : shard_.held()) optimizer_.measure(gradients(), stretch(held), hyper_, stream(), clips(), squares);
  for (const SharedSquares& shared : shared_squares_) {
    at::Tensor sums = shared.sums;
    at::index_select_out(sums, squares_, 0, shared.entries);
    shared.axis->run(comm::allreduce(sums));
    squares_.index_copy_(0, shared.entries, sums);
  }
  for (const tensor::Shard::Held& held : shard_.held()) optimizer_.move(gradients(), stretch(held), hyper_, stream(), clips(), squares);
}

}  // namespace paceline::step

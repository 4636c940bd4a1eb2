#include "paceline/data_parallel/arena_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/step/boxes.h"

namespace paceline::data_parallel {

std::vector<step::NamedTensor> arena_rows(const tensor::Arena& arena, const std::string& name, const at::Tensor& flat, std::int64_t row,
                                          std::int64_t rows) {
  const tensor::Shard::Held all[] = {{0, arena.length(), 0}};
  std::vector<step::NamedTensor> result;
  step::show(result, arena, name + ".", flat, all);
  for (step::NamedTensor& item : result) {
    if (!item.held()) continue;
    step::Box box{item.first(), item.shape()};
    box.first.insert(box.first.begin(), row), box.whole.insert(box.whole.begin(), rows);
    item.tensor = item.tensor.unsqueeze(0), item.box = std::move(box);
  }
  return result;
}

std::optional<std::int64_t> saved_arena_rows(const tensor::Arena& arena, std::span<const step::NamedTensor> state,
                                             const std::string& name) {
  if (arena.entries().empty()) return std::nullopt;
  const auto shape = step::saved_shape(state, name + "." + arena.entries()[0].name);
  return shape ? std::optional(shape->at(0)) : std::nullopt;
}

void take_arena_row(const comm::Communicator& comm, const tensor::Arena& arena, std::span<const step::NamedTensor> state,
                    const std::string& name, const at::Tensor& flat) {
  const std::int64_t rows = saved_arena_rows(arena, state, name).value_or(comm.size());
  if (rows == comm.size()) return step::fill(arena_rows(arena, name, flat, comm.rank(), rows), state);
  sum_arena_rows(arena, state, name, flat);
  at::Tensor(flat).div_(rows);
}

void sum_arena_rows(const tensor::Arena& arena, std::span<const step::NamedTensor> state, const std::string& name, const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  at::Tensor(flat).zero_();
  const std::int64_t rows = saved_arena_rows(arena, state, name).value_or(1);
  for (std::int64_t row = 0; row < rows; ++row)
    for (const step::NamedTensor& target : arena_rows(arena, name, flat, row, rows))
      if (target.held())
        at::Tensor(target.tensor).add_(step::saved_box(state, target.name, target.first(), target.tensor.sizes().vec()).to(flat.device()));
}

}  // namespace paceline::data_parallel

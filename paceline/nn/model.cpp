#include "paceline/nn/model.h"

#include <ATen/ATen.h>

#include <unordered_set>

#include "paceline/base/error.h"

namespace paceline::nn {

void Trace::begin(std::size_t places, std::size_t units, Units range) {
  saved.resize(places), later.resize(units), forward.resize(units, false);
  for (std::size_t unit = range.first; unit < range.last; ++unit) forward[unit] = true;
}

void Trace::use_up(Units range) {
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    if (unit >= forward.size() || !forward[unit])
      throw ConfigError("a backward pass needs the trace of its own forward pass, and consumes it; make another forward pass first");
    forward[unit] = false;
  }
}

std::int64_t Trace::bytes() const {
  std::unordered_set<const void*> seen;
  std::int64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const c10::Storage& storage = tensor.storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) sum += static_cast<std::int64_t>(storage.nbytes());
  };
  for (const Tensors& tensors : saved)
    for (const at::Tensor& tensor : tensors) add(tensor);
  for (const Kept& unit : kept) {
    for (const at::Tensor& tensor : unit.inputs) add(tensor);
    add(unit.chance);
  }
  return sum;
}

void Model::take_part(const at::Tensor& inputs, bool training) {
  Pass pass;
  pass.training = training;
  if (exchanges_samples()) run(inputs.narrow(0, 0, 0), pass, nullptr);
  else sit_out_run(all(), /*trained=*/false);
}

void Model::sit_out_back(Units range, const Pass& pass, const GradientReady& ready) {
  for (std::size_t unit = range.last; unit-- > range.first;) {
    const Unit& own = units()[unit];
    pass.call(&UnitHooks::before_backward, unit);
    for (std::size_t entry = own.first_entry; entry < own.last_entry && !pass.accumulate; ++entry) arena().gradient(entry).zero_();
    if (ready && own.first_entry < own.last_entry) ready(own.first_entry, own.last_entry);
    pass.call(&UnitHooks::after_backward, unit);
  }
}

}  // namespace paceline::nn

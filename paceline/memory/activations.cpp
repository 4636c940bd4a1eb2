#include "paceline/memory/activations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "paceline/graph/working_sets.h"

namespace paceline::memory {
namespace {

using graph::Kind;
using graph::Layer;

/// Kinds that may overwrite their first input, and kinds whose output the next layer may overwrite (nn/ops/registry.cpp).
bool overwrites(Kind kind) {
  return kind == Kind::relu || kind == Kind::relu6 || kind == Kind::tanh || kind == Kind::sigmoid || kind == Kind::add;
}
bool may_be_overwritten(Kind kind) {
  return !(kind == Kind::relu || kind == Kind::relu6 || kind == Kind::tanh || kind == Kind::sigmoid || kind == Kind::lrn ||
           kind == Kind::dropout || kind == Kind::flatten || kind == Kind::input);
}

bool saves_input(Kind kind) {
  switch (kind) {
    case Kind::conv:
    case Kind::fc:
    case Kind::batch_norm:
    case Kind::layer_norm:
    case Kind::gelu:
    case Kind::max_pool:
    case Kind::avg_pool:
    case Kind::global_pool:
    case Kind::lrn:
    case Kind::concat:
    case Kind::flatten:
    case Kind::embedding:
    case Kind::attention:
    case Kind::experts: return true;
    default: return false;
  }
}

bool saves_output(Kind kind) { return kind == Kind::relu || kind == Kind::relu6 || kind == Kind::tanh || kind == Kind::sigmoid; }

/// While the units before the last one run backward, the caller of the pass still holds the logits and their gradient
/// (step/local_pass.cpp).
std::int64_t logits_beside(const Activations& activations, std::size_t unit, bool ends) {
  return ends && unit + 1 < activations.units().size() ? 2 * activations.output() : 0;
}

/// What a pass keeps if it recomputes unit by unit: the input of every unit, and everything of the last one.
PassBytes by_units(const Activations& activations, std::size_t first, std::size_t last, bool last_is_kept, bool ends) {
  PassBytes bytes;
  for (std::size_t unit = first; unit < last; ++unit) bytes.held += activations.input(unit);
  if (last_is_kept) bytes.held += activations.saved(last - 1, last) - activations.input(last - 1);
  std::int64_t inputs = 0;
  for (std::size_t unit = first; unit < last; ++unit) {
    inputs += activations.input(unit);
    const std::int64_t needed = std::max(activations.gradients(unit), activations.forward(unit));
    const std::int64_t own = activations.saved_beside_input(unit) + needed;
    bytes.peak = std::max(bytes.peak, inputs + own + logits_beside(activations, unit, ends));
  }
  return bytes;
}

}  // namespace

// nn/split_loss.cpp: two tensors in fp32, one of which becomes the gradient. nn/loss.cpp: the gradient and, for one chunk, the
// log-probabilities, the probabilities and, if the logits have 16 bits, the logits in fp32.
std::int64_t Activations::loss() const {
  const std::int64_t logits = bytes_.back() / size_.element;
  if (size_.split_loss) return 2 * 4 * logits;
  if (size_.kernels.loss) return bytes_.back();
  return bytes_.back() + (size_.element < 4 ? 3 : 2) * 4 * std::min(logits, graph::kLogitsAtOnce);
}

Activations::Activations(std::vector<Layer> all, std::vector<graph::Unit> units, const PassSize& size)
    : layers_(std::move(all)), units_(std::move(units)), size_(size) {
  const auto& layers = layers_;
  std::vector<int> readers(layers.size(), 0);
  for (const Layer& layer : layers)
    for (const int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
  for (std::size_t i = 0; i < layers.size(); ++i) {
    bytes_.push_back(graph::elements(layers[i].output) * size_.samples * size_.element);
    storage_.push_back(i);
    if (layers[i].inputs.empty()) continue;
    const auto source = static_cast<std::size_t>(layers[i].inputs[0]);
    const auto unit = std::ranges::upper_bound(units_, i, {}, &graph::Unit::last);
    const bool same_unit = unit == units_.end() || source >= unit->first;
    const bool in_place =
        overwrites(layers[i].kind) && source != 0 && same_unit && readers[source] == 1 && may_be_overwritten(layers[source].kind);
    const bool view = layers[i].kind == Kind::flatten || (layers[i].kind == Kind::dropout && layers[i].probability == 0);
    if (in_place || view) storage_[i] = storage_[source];
  }
  count_saved(), count_inputs(), count_gradients();
  for (const graph::Unit& unit : units_) {
    forwards_.push_back(0);
    for (std::size_t i = unit.first; i < std::min(unit.last, layers.size()); ++i)
      forwards_.back() = std::max(forwards_.back(), needed_to_go_forward(i));
  }
}

/// Only products of 16-bit matrices need more than what is saved.
std::int64_t Activations::needed_to_go_forward(std::size_t i) const {
  const Layer& layer = layers_[i];
  const std::int64_t out = graph::elements(layer.output) * size_.samples;
  if (layer.kind == Kind::attention) return 3 * sums(layer.positions > 0 ? layer.positions * layer.channels * size_.samples : out);
  return layer.kind == Kind::fc ? sums(out) : 0;
}

/// Bytes that a layer saves in addition to inputs and outputs.
std::int64_t Activations::extra(const Layer& layer) const {
  const std::int64_t out = graph::elements(layer.output) * size_.samples;
  switch (layer.kind) {
    case Kind::batch_norm: return 2 * layer.output[0] * 4;
    case Kind::layer_norm: return 2 * out / layer.output.back() * size_.element;
    case Kind::max_pool: return out * 8;  // indices
    case Kind::lrn: return out * size_.element;
    case Kind::dropout: return layer.probability > 0 ? out * size_.element : 0;
    case Kind::attention: {
      const bool split = layer.positions > 0;  // by heads, each of which sees all positions
      const std::int64_t time = split ? layer.positions : layer.output[0], features = split ? layer.channels : layer.output[1];
      const std::int64_t mixed = time * features * size_.samples, sums = layer.heads * time * size_.samples;
      return 4 * mixed * size_.element + sums * 4;  // q, k, v and the output; the kernel's sums of exponentials, in fp32
    }
    case Kind::experts: {
      const std::int64_t slots = layer.experts * graph::expert_slots(layer) * size_.samples, rows = out / layer.output.back();
      const std::int64_t taken = slots * (layer.output.back() + 2 * layer.channels), answers = layer.experts_top * out;
      return (taken + answers) * size_.element + rows * (layer.experts + layer.experts_top) * 4  // the gate's output, in fp32
             + (slots + 2 * rows * layer.experts_top) * 8;                                       // who has which slot
    }
    default: return 0;
  }
}

std::vector<std::size_t> Activations::saved_by(std::size_t layer) const {
  std::vector<std::size_t> storages;
  if (saves_input(layers_[layer].kind))
    for (const int input : layers_[layer].inputs) storages.push_back(storage_of(static_cast<std::size_t>(input)));
  if (saves_output(layers_[layer].kind)) storages.push_back(storage_of(layer));
  return storages;
}

void Activations::count_saved() {
  std::map<std::size_t, std::size_t> latest;  // by storage: the unit that saved it last
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::set<std::size_t> storages;
    std::int64_t sum = 0;
    for (std::size_t i = units_[unit].first; i < units_[unit].last; ++i) {
      for (const std::size_t storage : saved_by(i)) storages.insert(storage);
      sum += extra(layers_[i]);
    }
    if (unit + 1 == units_.size()) storages.insert(storage_of(bytes_.size() - 1));  // the loss takes it
    if (!copies_batch()) storages.erase(0);
    for (const std::size_t storage : storages) {
      sum += bytes_[storage];
      if (const auto [known, fresh] = latest.try_emplace(storage, unit); !fresh)
        again_.push_back({std::exchange(known->second, unit), unit, bytes_[storage]});
    }
    own_.push_back(own_.back() + sum);
  }
}

std::int64_t Activations::saved(std::size_t first, std::size_t last) const {
  std::int64_t sum = own_[last] - own_[first];
  const auto begin = std::ranges::lower_bound(again_, first, {}, &Again::unit);
  for (auto each = begin; each != again_.end() && each->unit < last; ++each)
    if (each->before >= first) sum -= each->bytes;
  return sum;
}

void Activations::count_inputs() {
  std::vector<std::set<std::size_t>> storages(units_.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::size_t end = unit + 1 < units_.size() ? units_[unit].last : bytes_.size();
    for (std::size_t i = units_[unit].first; i < end; ++i)
      for (const int input : layers_[i].inputs)
        for (std::size_t into = unit + 1; into-- > 0 && static_cast<std::size_t>(input) < units_[into].first;)
          storages[into].insert(storage_of(static_cast<std::size_t>(input)));
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::set<std::size_t> saved;
    for (std::size_t i = units_[unit].first; i < std::min(units_[unit].last, layers_.size()); ++i)
      for (const std::size_t storage : saved_by(i)) saved.insert(storage);
    storages[unit].erase(0);
    std::int64_t sum = 0, again = 0;
    for (const std::size_t storage : storages[unit]) sum += bytes_[storage], again += saved.contains(storage) ? bytes_[storage] : 0;
    inputs_.push_back(sum), saved_beside_inputs_.push_back(own_[unit + 1] - own_[unit] - again);
  }
}

PassBytes pass_bytes(const Activations& activations, std::size_t first, std::size_t last, const std::string& recompute) {
  const bool ends = last == activations.units().size();
  PassBytes bytes;
  if (recompute == "units") {
    bytes = by_units(activations, first, last, ends, ends);
  } else if (recompute == "all") {
    const auto length = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(last - first))));
    for (std::size_t begin = first; begin < last; begin += length) {
      const PassBytes segment = by_units(activations, begin, std::min(begin + length, last), true, ends);
      bytes.peak = std::max(bytes.peak, bytes.held + segment.peak);
      bytes.held += activations.input(begin);
    }
    if (ends) bytes.held += activations.output();
  } else {
    bytes.held = activations.saved(first, last);
    for (std::size_t unit = first; unit < last; ++unit) {
      const std::int64_t saved = activations.saved(first, unit + 1);
      bytes.peak = std::max(
          {bytes.peak, saved + activations.forward(unit), saved + activations.gradients(unit) + logits_beside(activations, unit, ends)});
    }
  }
  if (ends) bytes.peak = std::max(bytes.peak, bytes.held + activations.loss());
  bytes.peak = std::max(bytes.peak, bytes.held);
  return bytes;
}

}  // namespace paceline::memory

#include "paceline/graph/tensor_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "paceline/base/mesh_refusal.h"
#include "paceline/graph/split_rules.h"

namespace paceline::graph {
namespace {

/// A final layer without a partner is worth splitting if it saves this many multiplications for each element that it sends.
constexpr std::int64_t kWorth = 16;

class Splitter {
 public:
  /// `divides`: layers that the ranks cannot share evenly stay whole; false: assume that everything can be shared.
  Splitter(const Graph& graph, int parts, bool sequence, bool divides)
      : graph_(graph),
        layers_(graph.layers()),
        parts_(parts),
        sequence_(sequence),
        divides_(divides),
        readers_(readers_of(graph)),
        trained_before_(trained_before(graph)) {
    result_.parts = parts, result_.sequence = sequence;
    result_.layers.resize(layers_.size());
  }

  TensorSplit run() {
    for (std::size_t i = 1; i < layers_.size(); ++i)
      if (result_.layers[i].form == Form::whole) split_from(i);
    if (sequence_) lay_out_positions();
    for (std::size_t i = 1; i < layers_.size(); ++i) count_traffic(i);
    return result_;
  }

  /// The first layer that would be split if its size allowed it.
  const std::string& undivided() const { return undivided_; }

 private:
  const Shape& input_of(std::size_t i) const { return graph::input_of(graph_, i); }

  bool shared_evenly(std::size_t i, std::int64_t count, const char* what) {
    if (!divides_ || count % parts_ == 0) return true;
    result_.layers[i].note = fmt::format("{} {} do not divide by {}", count, what, parts_);
    if (undivided_.empty()) undivided_ = fmt::format("layer '{}' has {} {}", layers_[i].name, count, what);
    return false;
  }

  /// For what ranks can share unevenly.
  bool enough(std::size_t i, std::int64_t count, const char* what) {
    if (count < parts_) result_.layers[i].note = fmt::format("{} {} are fewer than {} ranks", count, what, parts_);
    return count >= parts_;
  }

  void set(std::size_t i, Form form, std::vector<std::optional<Cut>> cuts) {
    result_.layers[i].form = form;
    result_.layers[i].cuts = std::move(cuts);
  }

  void split_from(std::size_t i) {
    const Layer& layer = layers_[i];
    if (layer.kind == Kind::attention) {
      if (!shared_evenly(i, layer.heads, "heads")) return;
      if (layer.bias) set(i, Form::both, {Cut{0, 3}, Cut{0, 3}, Cut{1}, std::nullopt});
      else set(i, Form::both, {Cut{0, 3}, Cut{1}});
    } else if (layer.kind == Kind::embedding) {
      if (enough(i, layer.vocabulary, "tokens")) set(i, Form::row, {Cut{0}, std::nullopt});
    } else if (rule_of(layer, input_of(i)).column) {
      pair_up(i);
    }
  }

  void pair_up(std::size_t first) {
    const std::optional<Partner> partner = partner_of(graph_, readers_, first);
    if (!partner) result_.layers[first].note = "no layer to pair with";
    else if (partner->is_loss ? worth_closing(first) : shared_evenly(first, layers_[first].channels, unit_of(first))) take(first, *partner);
  }

  const char* unit_of(std::size_t i) const { return layers_[i].kind == Kind::fc ? "features" : "channels"; }

  /// Classes may be shared unevenly, since a vocabulary can have any size.
  bool worth_closing(std::size_t i) {
    const Layer& layer = layers_[i];
    if (!enough(i, layer.channels, "classes")) return false;
    if (layer.table >= 0) return true;  // the embedding is split, and so is its table
    if (sequence_) return true;
    const std::int64_t saved = layer.macs - layer.macs / parts_, sent = std::max<std::int64_t>(elements(input_of(i)), 1);
    if (saved >= kWorth * sent) return true;
    result_.layers[i].note = "too few multiplications to be worth it";
    return false;
  }

  void take(std::size_t first, const Partner& partner) {
    result_.layers[first] = split_as(graph_, first, Form::column);
    for (const std::size_t i : partner.between) result_.layers[i] = split_as(graph_, i, Form::follows);
    result_.layers[partner.layer] = split_as(graph_, partner.layer, partner.is_loss ? Form::follows : Form::row);
    if (partner.is_loss) result_.layers[partner.layer].output = Layout::whole;
  }

  /// Between the pairs of a transformer, tensors that would be whole are split by positions.
  void lay_out_positions() {
    for (std::size_t i = 1; i < layers_.size(); ++i) {
      LayerSplit& layer = result_.layers[i];
      const auto source = static_cast<std::size_t>(layers_[i].inputs[0]);
      if (layer.input == Layout::whole) layer.input = result_.layers[source].output;
      const bool stream = layers_[i].output.size() == 2 && layers_[i].kind != Kind::softmax_loss;
      if (layer.output == Layout::whole && stream) layer.output = Layout::positions;
      layer.sums_gradients = layer.form == Form::whole && layer.output == Layout::positions && layers_[i].parameters > 0 && !gathers(i);
    }
  }

  /// The slots of experts are filled from whole sequences, so all ranks compute them.
  bool gathers(std::size_t i) const { return sequence_ && layers_[i].kind == Kind::experts; }

  void count_traffic(std::size_t i) {
    LayerSplit& layer = result_.layers[i];
    const std::int64_t in = 4 * elements(input_of(i)), out = 4 * elements(layers_[i].output);
    const bool enters = layer.form == Form::column || layer.form == Form::both,
               leaves = layer.form == Form::row || layer.form == Form::both;
    const auto sum = sequence_ ? Exchange::reduce_scatter : Exchange::allreduce;
    if ((sequence_ && enters) || gathers(i)) layer.forward.push_back({Exchange::all_gather, in});
    if (leaves) layer.forward.push_back({sum, out});
    if ((sequence_ && leaves) || gathers(i)) layer.backward.push_back({Exchange::all_gather, out});
    if (sequence_ && enters) layer.backward.push_back({Exchange::all_gather, in});  // the input again, since only a part of it is kept
    if (enters && trained_before_[i]) layer.backward.push_back({sum, in});
    if (layer.sums_gradients) layer.backward.push_back({Exchange::allreduce, layers_[i].gradient_bytes});
    if (layers_[i].kind == Kind::softmax_loss && layer.form == Form::follows) {
      const std::int64_t targets = elements(input_of(i)) / input_of(i).back();
      for (const std::int64_t bytes : {4, 12, 8})  // the largest logit; three sums; the index of the prediction
        layer.forward.push_back({Exchange::allreduce, bytes * targets});
    }
  }

  const Graph& graph_;
  const std::vector<Layer>& layers_;
  int parts_;
  bool sequence_, divides_;
  TensorSplit result_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> trained_before_;
  std::string undivided_;
};

std::int64_t split_macs(const Graph& graph, const TensorSplit& split) {
  std::int64_t macs = 0;
  for (std::size_t i = 1; i < split.layers.size(); ++i)
    if (split.layers[i].form != Form::whole) macs += graph.layers()[i].macs;
  return macs;
}

/// Why `parts` ranks cannot share the network; empty if they can.
std::string reason_against(const Graph& graph, int parts, bool sequence) {
  for (const Layer& layer : graph.layers()) {
    if (layer.kind == Kind::attention && layer.heads % parts != 0) return fmt::format("layer '{}' has {} heads", layer.name, layer.heads);
    if (sequence && layer.kind == Kind::attention && layer.output[0] % parts != 0)
      return fmt::format("layer '{}' has {} positions, which parallel.sequence splits", layer.name, layer.output[0]);
    if (sequence && layer.kind == Kind::embedding && layer.vocabulary < parts)
      return fmt::format("layer '{}' has a vocabulary of {}", layer.name, layer.vocabulary);
  }
  Splitter real(graph, parts, sequence, true);
  const std::int64_t split = split_macs(graph, real.run());
  const std::int64_t wanted = split_macs(graph, Splitter(graph, parts, sequence, false).run());
  if (wanted == 0) return "it has no consecutive layers that ranks could share";
  return 2 * split < wanted ? real.undivided() : std::string();
}

/// The nearest numbers of ranks that work, as settings.
std::vector<std::string> nearest(const Graph& graph, int parts, bool sequence) {
  std::vector<std::string> near;
  for (int below = parts - 1; below > 1 && near.empty(); --below)
    if (reason_against(graph, below, sequence).empty()) near.push_back(fmt::format("parallel.tensor={}", below));
  const std::size_t found = near.size();
  for (int above = parts + 1; above <= 2 * parts && near.size() == found; ++above)
    if (reason_against(graph, above, sequence).empty()) near.push_back(fmt::format("parallel.tensor={}", above));
  return near;
}

[[noreturn]] void refuse_split(const Graph& graph, int parts, bool sequence, const std::string& reason) {
  std::vector<std::string> near = nearest(graph, parts, sequence);
  std::string problem =
      fmt::format("network '{}' cannot be split among {} ranks of the tensor axis: {}; choose ", graph.network(), parts, reason);
  if (sequence && reason_against(graph, parts, false).empty()) {
    problem += "parallel.sequence=false";
    if (near.empty()) throw ConfigError(problem);
    problem += ", or ";
  }
  if (near.empty()) near.emplace_back(sequence ? "parallel.tensor=1 parallel.sequence=false" : "parallel.tensor=1");
  throw MeshRefusal(problem, fmt::format("{}", fmt::join(near, " or ")));
}

}  // namespace

TensorSplit tensor_split(const Graph& graph, int parts, bool sequence) {
  if (parts < 1)
    throw ConfigError(fmt::format("network '{}' cannot be split among {} ranks; use for example tensor=2", graph.network(), parts));
  if (sequence && std::ranges::find(graph.layers(), Kind::attention, &Layer::kind) == graph.layers().end())
    throw ConfigError(
        fmt::format("parallel.sequence splits the positions of a transformer, but network '{}' has none; leave it out", graph.network()));
  if (parts == 1) {
    TensorSplit whole;
    whole.layers.resize(graph.layers().size());
    return whole;
  }
  if (const std::string reason = reason_against(graph, parts, sequence); !reason.empty()) refuse_split(graph, parts, sequence, reason);
  return Splitter(graph, parts, sequence, true).run();
}

bool splits(const Graph& graph, int parts, bool sequence) {
  const bool has_attention = std::ranges::find(graph.layers(), Kind::attention, &Layer::kind) != graph.layers().end();
  if (parts < 2 || (sequence && !has_attention) || !reason_against(graph, parts, sequence).empty()) return false;
  return Splitter(graph, parts, sequence, true).run().splits_anything();
}

bool TensorSplit::splits_anything() const {
  return std::ranges::any_of(layers, [](const LayerSplit& layer) { return layer.form != Form::whole; });
}

bool TensorSplit::splits_logits(const Graph& graph) const {
  return layers.at(static_cast<std::size_t>(graph.logits())).output == Layout::channels;
}

std::int64_t Slice::count() const {
  std::int64_t sum = 0;
  for (const Run& run : runs) sum += run.count;
  return sum;
}

Slice::Run part_of(std::int64_t all, int parts, int rank) {
  const std::int64_t first = all * rank / parts;
  return {first, all * (rank + 1) / parts - first};
}

Slice slice_of(const Shape& whole, const Cut& cut, int parts, int rank) {
  Slice slice;
  slice.dim = cut.dim, slice.all = whole.at(static_cast<std::size_t>(cut.dim));
  const std::int64_t block = slice.all / cut.blocks;
  for (std::int64_t i = 0; i < cut.blocks; ++i) {
    Slice::Run run = part_of(block, parts, rank);
    run.first += i * block;
    slice.runs.push_back(run);
  }
  return slice;
}

Layer local_layer(const Graph& graph, const TensorSplit& split, std::size_t layer, int rank) {
  Layer local = graph.layers().at(layer);
  const LayerSplit& how = split.layers.at(layer);
  const auto part = [&](std::int64_t all) { return part_of(all, split.parts, rank).count; };
  if (how.form == Form::column) local.channels = part(local.channels);
  if (how.form == Form::both) {
    local.positions = local.output.front(), local.channels = local.output.back() / local.heads * part(local.heads);
    local.heads = part(local.heads);
  }
  if (how.form == Form::row && local.kind == Kind::embedding) local.vocabulary = part(local.vocabulary);
  if (how.form == Form::follows && local.kind == Kind::conv) local.channels = part(local.channels), local.groups = part(local.groups);
  // An image has its channels first, a sequence has them last; a flattened image is split where its channels were.
  if (how.output == Layout::channels) {
    std::int64_t& channels = local.output.size() == 3 ? local.output.front() : local.output.back();
    channels = part(channels);
  }
  if (how.output == Layout::positions && local.kind != Kind::experts) local.output.front() = part(local.output.front());
  return local;
}

std::int64_t local_parameters(const Graph& graph, const TensorSplit& split, int rank) {
  std::int64_t sum = 0;
  for (const LocalTensor& tensor : local_tensors(graph, split, rank))
    if (tensor.whole.trainable) sum += elements(tensor.shape);
  return sum;
}

std::vector<LocalTensor> local_tensors(const Graph& graph, const TensorSplit& split, int rank) {
  std::vector<LocalTensor> tensors;
  std::size_t place = 0;  // within its layer
  for (Parameter& parameter : graph.parameters()) {
    place = !tensors.empty() && tensors.back().whole.layer == parameter.layer ? place + 1 : 0;
    const auto& cuts = split.layers.at(static_cast<std::size_t>(parameter.layer)).cuts;
    LocalTensor tensor{.whole = parameter, .shape = parameter.shape, .slice = std::nullopt};
    if (place < cuts.size() && cuts[place]) {
      tensor.slice = slice_of(parameter.shape, *cuts[place], split.parts, rank);
      tensor.shape.at(static_cast<std::size_t>(tensor.slice->dim)) = tensor.slice->count();
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace paceline::graph

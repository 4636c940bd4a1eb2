#include "paceline/graph/hybrid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "paceline/base/mesh_refusal.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"
#include "paceline/graph/split_rules.h"

namespace paceline::graph {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// The bytes that a worker sends in a step to exchange a tensor of this many bytes per sample.
double sent(const Traffic& traffic, int workers, std::int64_t batch) {
  const double all = static_cast<double>(traffic.bytes * batch), parts = workers, others = (parts - 1) / parts;
  switch (traffic.exchange) {
    case Exchange::allreduce: return 2 * others * all;
    case Exchange::all_gather:
    case Exchange::reduce_scatter: return others * all;
    case Exchange::all_to_all: return others * all / parts;  // of its own samples, or of its own channels
  }
  throw InternalError("an exchange without a cost");
}

double sent(const LayerSplit& layer, int workers, std::int64_t batch) {
  double sum = 0;
  for (const auto* pass : {&layer.forward, &layer.backward})
    for (const Traffic& traffic : *pass) sum += sent(traffic, workers, batch);
  return sum;
}

/// The allreduce of the gradients of its tensors if they are not split.
double sent_as_gradients(const Graph& graph, std::size_t layer, const LayerSplit& cut, int workers) {
  std::int64_t elements = 0;
  const auto tensors = graph.parameters();
  std::size_t place = 0;
  for (const Parameter& tensor : tensors) {
    if (static_cast<std::size_t>(tensor.layer) != layer) continue;
    if (place < cut.cuts.size() && cut.cuts[place]) elements += graph::elements(tensor.shape);
    ++place;
  }
  return sent({Exchange::allreduce, 4 * elements}, workers, 1);
}

/// One way to split a layer, or a pair of layers, and what it costs.
struct Choice {
  std::vector<std::pair<std::size_t, LayerSplit>> layers;
  double bytes = kImpossible;  // a worker sends in a step
  std::size_t taken = 1;       // of the candidates
};

class Hybrid {
 public:
  Hybrid(const Graph& graph, std::vector<std::size_t> candidates, bool chooses, int workers, std::int64_t batch)
      : graph_(graph),
        candidates_(std::move(candidates)),
        chooses_(chooses),
        workers_(workers),
        batch_(batch),
        readers_(readers_of(graph)),
        trained_before_(trained_before(graph)) {}

  /// Nullopt if some layer cannot be split.
  std::optional<TensorSplit> run() {
    TensorSplit result;
    result.parts = workers_, result.hybrid = true, result.batch = batch_;
    result.layers.resize(graph_.layers().size());
    for (LayerSplit& layer : result.layers) layer.input = layer.output = Layout::samples;
    // From the end: the cheapest way for the candidates starting at i.
    std::vector<double> best(candidates_.size() + 1, 0);
    std::vector<Choice> chosen(candidates_.size());
    for (std::size_t i = candidates_.size(); i-- > 0;) {
      best[i] = kImpossible;
      for (Choice& choice : choices(i)) {
        const double bytes = choice.bytes + best[i + choice.taken];
        if (bytes < best[i]) best[i] = bytes, chosen[i] = std::move(choice);
      }
    }
    if (best[0] == kImpossible) return std::nullopt;
    for (std::size_t i = 0; i < candidates_.size(); i += chosen[i].taken)
      for (auto& [layer, split] : chosen[i].layers) result.layers[layer] = std::move(split);
    return result;
  }

  bool can_split(std::size_t layer) const { return divides(features(layer)) || divides(graph_.layers()[layer].channels); }

 private:
  std::int64_t features(std::size_t layer) const { return input_of(graph_, layer).back(); }
  bool divides(std::int64_t count) const { return count % workers_ == 0; }

  std::vector<Choice> choices(std::size_t index) const {
    const std::size_t layer = candidates_[index];
    std::vector<Choice> all;
    if (divides(features(layer))) all.push_back(priced({{layer, row(layer, Layout::samples)}}));
    if (divides(graph_.layers()[layer].channels)) all.push_back(priced({{layer, column(layer, Layout::samples)}}));
    if (const auto partner = partner_of(graph_, readers_, layer);
        partner && index + 1 < candidates_.size() && partner->layer == candidates_[index + 1] && divides(graph_.layers()[layer].channels)) {
      Choice pair;
      pair.layers.emplace_back(layer, column(layer, Layout::channels));
      for (const std::size_t i : partner->between) pair.layers.emplace_back(i, split_as(graph_, i, Form::follows));
      pair.layers.emplace_back(partner->layer, row(partner->layer, Layout::channels));
      all.push_back(priced(std::move(pair.layers)));
      all.back().taken = 2;
    }
    if (chooses_) all.push_back(whole(layer, all.empty()));
    return all;
  }

  Choice priced(std::vector<std::pair<std::size_t, LayerSplit>> layers) const {
    Choice choice{.layers = std::move(layers), .bytes = 0, .taken = 1};
    for (const auto& [layer, split] : choice.layers) choice.bytes += sent(split, workers_, batch_);
    return choice;
  }

  Choice whole(std::size_t layer, bool must) const {
    LayerSplit split;
    split.input = split.output = Layout::samples;
    split.note = must ? fmt::format("{} and {} features do not divide by {}", features(layer), graph_.layers()[layer].channels, workers_)
                      : "gradients have fewer bytes";
    return {
        .layers = {{layer, split}}, .bytes = sent_as_gradients(graph_, layer, split_as(graph_, layer, Form::row), workers_), .taken = 1};
  }

  LayerSplit column(std::size_t layer, Layout output) const {
    LayerSplit split = split_as(graph_, layer, Form::column);
    const std::int64_t in = 4 * elements(input_of(graph_, layer)), out = 4 * elements(graph_.layers()[layer].output);
    split.input = Layout::samples, split.output = output;
    split.forward.push_back({Exchange::all_gather, in});
    if (output == Layout::samples) split.forward.push_back({Exchange::all_to_all, out});
    if (output == Layout::samples) split.backward.push_back({Exchange::all_to_all, out});
    if (trained_before_[layer]) split.backward.push_back({Exchange::reduce_scatter, in});
    return split;
  }

  LayerSplit row(std::size_t layer, Layout input) const {
    LayerSplit split = split_as(graph_, layer, Form::row);
    const std::int64_t in = 4 * elements(input_of(graph_, layer)), out = 4 * elements(graph_.layers()[layer].output);
    split.input = input, split.output = Layout::samples;
    if (input == Layout::samples) split.forward.push_back({Exchange::all_to_all, in});
    split.forward.push_back({Exchange::reduce_scatter, out});
    split.backward.push_back({Exchange::all_gather, out});
    if (input == Layout::samples && trained_before_[layer]) split.backward.push_back({Exchange::all_to_all, in});
    return split;
  }

  const Graph& graph_;
  std::vector<std::size_t> candidates_;  // ascending
  bool chooses_;                         // may leave candidates data-parallel
  int workers_;
  std::int64_t batch_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> trained_before_;
};

bool matches(const std::string& pattern, const std::string& name) {
  return pattern.ends_with('*') ? name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1)) : name == pattern;
}

/// False for the table of an embedding.
bool can_be_cut(const Layer& layer) { return layer.kind == Kind::fc && layer.table < 0; }

/// The names of the fully connected layers.
std::vector<std::size_t> candidates_of(const Graph& graph, const std::string& which) {
  std::vector<std::string_view> connected;
  for (const Layer& layer : graph.layers())
    if (can_be_cut(layer)) connected.push_back(layer.name);
  if (connected.empty())
    throw ConfigError(
        fmt::format("parallel.hybrid={} splits fully connected layers, but network '{}' has none; leave it out", which, graph.network()));
  const std::vector<std::string> patterns = which == "auto" ? std::vector<std::string>{"*"} : items_of(which);
  if (patterns.empty())
    throw ConfigError(fmt::format("parallel.hybrid names no layer; use none, auto, or some of {}", fmt::join(connected, ", ")));
  std::vector<bool> chosen(graph.layers().size(), false);
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (std::size_t i = 1; i < graph.layers().size(); ++i) {
      const Layer& layer = graph.layers()[i];
      if (!matches(pattern, layer.name)) continue;
      if (can_be_cut(layer)) chosen[i] = found = true;
      else if (pattern == layer.name && layer.table >= 0)
        throw ConfigError(fmt::format(
            "parallel.hybrid={}: the weight of layer '{}' is the table of an embedding, which stays whole; leave it out, or use "
            "model.tied=false",
            which, pattern));
      else if (pattern == layer.name)
        throw ConfigError(
            fmt::format("parallel.hybrid={}: layer '{}' of network '{}' is a {}, but only fully connected layers can be split: {}", which,
                        pattern, graph.network(), name_of(layer.kind), fmt::join(connected, ", ")));
    }
    if (!found)
      throw ConfigError(
          fmt::format("parallel.hybrid={}: {}", which,
                      unknown_message(fmt::format("fully connected layer of network '{}'", graph.network()), pattern, connected)));
  }
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) candidates.push_back(i);
  return candidates;
}

}  // namespace

TensorSplit hybrid_split(const Graph& graph, const std::string& which, int workers, std::int64_t batch) {
  const std::vector<std::size_t> candidates = candidates_of(graph, which);
  if (workers == 1) {
    TensorSplit whole;
    whole.layers.resize(graph.layers().size());
    return whole;
  }
  const auto with = [&](int count) { return Hybrid(graph, candidates, which == "auto", count, batch); };
  if (auto split = with(workers).run()) return *split;
  int fewer = workers - 1;
  while (fewer > 1 && !with(fewer).run()) --fewer;
  const auto bad = *std::ranges::find_if(candidates, [&](std::size_t layer) { return !with(workers).can_split(layer); });
  throw MeshRefusal(
      fmt::format(
          "parallel.hybrid={}: layer '{}' of network '{}' makes {} features of {}, and {} workers can divide neither evenly; leave it "
          "out, or use ",
          which, graph.layers()[bad].name, graph.network(), graph.layers()[bad].channels, input_of(graph, bad).back(), workers),
      fmt::format("parallel.data={}", fewer));
}

HybridBytes hybrid_bytes(const Graph& graph, const TensorSplit& split) {
  double activations = 0, gradients = 0;
  for (std::size_t i = 1; i < split.layers.size() && split.hybrid; ++i) {
    if (split.layers[i].form == Form::whole) continue;
    activations += sent(split.layers[i], split.parts, split.batch);
    gradients += sent_as_gradients(graph, i, split.layers[i], split.parts);
  }
  return {static_cast<std::int64_t>(activations), static_cast<std::int64_t>(gradients)};
}

namespace {

/// The reason why no layer is split.
std::string reason_for_none(const Graph& graph, int workers) {
  if (workers == 1) return "there is one worker";
  const auto divides = [&](std::size_t i) {
    return can_be_cut(graph.layers()[i]) && (graph.layers()[i].channels % workers == 0 || input_of(graph, i).back() % workers == 0);
  };
  for (std::size_t i = 1; i < graph.layers().size(); ++i)
    if (divides(i)) return "gradients have fewer bytes than activations";
  return fmt::format("{} workers can divide the features of none evenly", workers);
}

}  // namespace

std::string describe_hybrid(const Graph& graph, const TensorSplit& split) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < split.layers.size(); ++i)
    if (const Form form = split.layers[i].form; form == Form::column || form == Form::row)
      names.push_back(fmt::format("{} {}", graph.layers()[i].name, name_of(form)));
  if (names.empty()) return "no layer is split: " + reason_for_none(graph, split.parts);
  const HybridBytes bytes = hybrid_bytes(graph, split);
  return fmt::format("{}: {} B of activations per step instead of {} B of gradients", fmt::join(names, ", "), show_count(bytes.activations),
                     show_count(bytes.gradients));
}

}  // namespace paceline::graph

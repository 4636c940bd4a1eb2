#include "paceline/graph/split_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/units.h"

namespace paceline::graph {
namespace {

/// "96/192x64": 96 of 192 rows of 64.
std::string show(const LocalTensor& tensor) {
  std::vector<std::string> sizes;
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    const bool cut = tensor.slice && tensor.slice->dim == static_cast<std::int64_t>(dim);
    sizes.push_back(cut ? fmt::format("{}/{}", tensor.shape[dim], tensor.slice->all) : fmt::format("{}", tensor.shape[dim]));
  }
  return fmt::format("{}", fmt::join(sizes, "x"));
}

/// "allreduce 1,024 + 96"
std::string show(const std::vector<Traffic>& traffic) {
  std::string text;
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    const bool same = i > 0 && traffic[i].exchange == traffic[i - 1].exchange;
    text += i == 0 ? "" : " + ";
    text += same ? show_count(traffic[i].bytes) : fmt::format("{} {}", name_of(traffic[i].exchange), show_count(traffic[i].bytes));
  }
  return text;
}

/// For each layer, what rank 0 holds of its trainable tensors.
std::vector<std::vector<LocalTensor>> tensors_by_layer(const Graph& graph, const TensorSplit& split) {
  std::vector<std::vector<LocalTensor>> by_layer(graph.layers().size());
  for (LocalTensor& tensor : local_tensors(graph, split, 0))
    if (tensor.whole.trainable) by_layer[static_cast<std::size_t>(tensor.whole.layer)].push_back(std::move(tensor));
  return by_layer;
}

struct Total {
  std::size_t calls = 0;
  std::int64_t bytes = 0;
};
Total total(const TensorSplit& split, std::vector<Traffic> LayerSplit::*pass) {
  Total sum;
  for (const LayerSplit& layer : split.layers)
    for (const Traffic& traffic : layer.*pass) ++sum.calls, sum.bytes += traffic.bytes;
  return sum;
}

std::string join(const std::vector<LocalTensor>& tensors) {
  std::vector<std::string> shown;
  for (const LocalTensor& tensor : tensors) shown.push_back(show(tensor));
  return fmt::format("{}", fmt::join(shown, " "));
}

/// The layers of a stage, or of all units.
std::pair<std::size_t, std::size_t> layers_of(const std::vector<Unit>& units, const Units& stage) {
  return {units.at(stage.first).first, units.at(stage.last - 1).last};
}

/// "1,024", or "at most 1,024" if the ranks hold different numbers.
std::string most_of(std::span<const std::int64_t> counts) {
  const auto [least, most] = std::ranges::minmax(counts);
  return (least < most ? "at most " : "") + show_count(most);
}

/// A line for each stage: what it computes, and what each of its ranks holds.
std::string stages_text(const Graph& graph, const OnMesh& mesh, const std::vector<std::int64_t>& parameters) {
  const std::vector<UnitCost> units = counted_costs(graph);
  const auto time_of = [&](const Units& range) {
    double sum = 0;
    for (std::size_t unit = range.first; unit < range.last; ++unit) sum += units[unit].time;
    return sum;
  };
  std::string text;
  for (std::size_t i = 0; i < mesh.stages.size(); ++i) {
    const std::string &first = units[mesh.stages[i].first].name, &last = units[mesh.stages[i].last - 1].name;
    const std::size_t ranks = parameters.size() / mesh.stages.size();
    fmt::format_to(std::back_inserter(text), "stage {}: {}, {:.0f}% of the time, {} parameters on a rank\n", i,
                   first == last ? first : first + " … " + last, 100 * time_of(mesh.stages[i]) / time_of({0, units.size()}),
                   most_of(std::span(parameters).subspan(i * ranks, ranks)));
  }
  return text;
}

nlohmann::json names_of_stages(const Graph& graph, const std::vector<Units>& stages) {
  const std::vector<Unit> units = units_of(graph);
  auto rows = nlohmann::json::array();
  for (const Units& stage : stages) {
    auto& names = rows.emplace_back(nlohmann::json::array());
    for (std::size_t unit = stage.first; unit < stage.last; ++unit) names.push_back(units[unit].name);
  }
  return rows;
}

nlohmann::json to_json(const std::vector<Traffic>& traffic) {
  auto list = nlohmann::json::array();
  for (const Traffic& one : traffic) list.push_back({{"exchange", name_of(one.exchange)}, {"bytes", one.bytes}});
  return list;
}

}  // namespace

std::string_view name_of(Form form) {
  switch (form) {
    case Form::whole: return "whole";
    case Form::column: return "column";
    case Form::row: return "row";
    case Form::both: return "column, row";
    case Form::follows: return "follows";
  }
  throw InternalError("a form without a name");
}

std::string_view name_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::allreduce: return "allreduce";
    case Exchange::all_gather: return "all_gather";
    case Exchange::reduce_scatter: return "reduce_scatter";
    case Exchange::all_to_all: return "all_to_all";
  }
  throw InternalError("an exchange without a name");
}

std::vector<std::int64_t> parameters_by_rank(const Graph& graph, const OnMesh& mesh) {
  const std::vector<Unit> units = units_of(graph);
  const std::vector<Units> stages = mesh.stages.empty() ? std::vector<Units>{{0, units.size()}} : mesh.stages;
  const int tensor_ranks = mesh.split.hybrid ? 1 : mesh.split.parts;
  std::vector<std::int64_t> sums;
  for (const Units& stage : stages)
    for (int data = 0; data < mesh.data; ++data)
      for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
        const auto [first, last] = layers_of(units, stage);
        std::int64_t& sum = sums.emplace_back(0);
        for (const LocalTensor& held : local_tensors(graph, mesh.split, mesh.split.hybrid ? data : tensor)) {
          const auto layer = static_cast<std::size_t>(held.whole.layer);
          if (held.whole.trainable && first <= layer && layer < last) sum += elements(held.shape) / (held.whole.spread ? mesh.data : 1);
        }
      }
  return sums;
}

std::vector<std::string> layers_left_whole(const Graph& graph, const TensorSplit& split) {
  constexpr std::size_t kNames = 3, kReasons = 3;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // in the order of their first layers
  for (std::size_t i = 0; i < split.layers.size(); ++i) {
    const LayerSplit& how = split.layers[i];
    if (how.form != Form::whole || how.note.empty()) continue;
    auto reason = std::ranges::find(reasons, how.note, [](const auto& one) { return one.first; });
    if (reason == reasons.end()) reason = reasons.emplace(reason, how.note, std::vector<std::string>());
    reason->second.push_back(graph.layers()[i].name);
  }
  std::vector<std::string> lines;
  std::size_t rest = 0;
  for (const auto& [note, names] : reasons) {
    const auto named = std::span(names).first(std::min(names.size(), kNames));
    const std::string more = names.size() > named.size() ? fmt::format(" and {} more", names.size() - named.size()) : "";
    if (lines.size() == kReasons) rest += names.size();
    else lines.push_back(fmt::format("{}{} {} whole: {}", fmt::join(named, ", "), more, names.size() == 1 ? "stays" : "stay", note));
  }
  if (rest > 0) lines.push_back(fmt::format("{} more {} whole, for other reasons", rest, rest == 1 ? "stays" : "stay"));
  return lines;
}

std::string split_table(const Graph& graph, const OnMesh& mesh) {
  const TensorSplit& split = mesh.split;
  const auto tensors = tensors_by_layer(graph, split);
  std::vector<std::array<std::string, 7>> rows = {
      {"name", "kind", "form", "output", "weights of a rank", "forward bytes", "backward bytes"}};
  for (std::size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    const LayerSplit& how = split.layers[i];
    const bool explains = how.form == Form::whole && !how.note.empty();
    rows.push_back({layer.name, std::string(name_of(layer.kind)),
                    explains ? fmt::format("whole ({})", how.note) : std::string(name_of(how.form)),
                    to_string(local_layer(graph, split, i, 0).output), join(tensors[i]), show(how.forward), show(how.backward)});
  }
  std::array<std::size_t, 7> widths = {};
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column) widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += column == 3 ? fmt::format("{:>{}}  ", row[column], widths[column]) : fmt::format("{:<{}}  ", row[column], widths[column]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }

  const std::string title = fmt::format("{}, input {}", graph.network(), to_string(graph.input()));
  const std::vector<std::int64_t> parameters = parameters_by_rank(graph, mesh);
  const std::int64_t most = std::ranges::max(parameters), all = graph.parameter_count();
  const std::string share = fmt::format("{} of {} parameters on a rank ({:.1f}%)", most_of(parameters), show_count(all),
                                        100.0 * static_cast<double>(most) / static_cast<double>(std::max<std::int64_t>(all, 1)));
  if (split.parts == 1)
    return text + fmt::format("\n{}: {}\n", title, most < all ? share : show_count(all) + " parameters") +
           stages_text(graph, mesh, parameters);
  const Total forward = total(split, &LayerSplit::forward), backward = total(split, &LayerSplit::backward);
  fmt::format_to(std::back_inserter(text),
                 "\n{}, {}={}{}: {}\n"
                 "a sample sends {} B forward in {} and {} B backward in {}\n",
                 title, split.hybrid ? "hybrid over data" : "tensor", split.parts, split.sequence ? ", sequence" : "", share,
                 show_count(forward.bytes), plural(static_cast<std::int64_t>(forward.calls), "collective"), show_count(backward.bytes),
                 plural(static_cast<std::int64_t>(backward.calls), "collective"));
  for (const std::string& line : layers_left_whole(graph, split)) text += line + "\n";
  if (split.hybrid) text += fmt::format("a step of {}: {}\n", plural(split.batch, "sample"), describe_hybrid(graph, split));
  return text + stages_text(graph, mesh, parameters);
}

nlohmann::json to_json(const Graph& graph, const OnMesh& mesh) {
  const TensorSplit& split = mesh.split;
  const auto tensors = tensors_by_layer(graph, split);
  auto layers = nlohmann::json::array();
  for (std::size_t i = 0; i < graph.layers().size(); ++i) {
    auto held = nlohmann::json::array();
    for (const LocalTensor& tensor : tensors[i]) {
      held.push_back({{"name", tensor.whole.name}, {"shape", tensor.whole.shape}, {"local", tensor.shape}});
      if (tensor.slice) held.back()["dim"] = tensor.slice->dim;
    }
    layers.push_back({{"name", graph.layers()[i].name},
                      {"kind", name_of(graph.layers()[i].kind)},
                      {"form", name_of(split.layers[i].form)},
                      {"note", split.layers[i].form == Form::whole ? split.layers[i].note : ""},
                      {"output", local_layer(graph, split, i, 0).output},
                      {"tensors", std::move(held)},
                      {"forward", to_json(split.layers[i].forward)},
                      {"backward", to_json(split.layers[i].backward)}});
  }
  nlohmann::json json = {{"network", graph.network()},
                         {split.hybrid ? "data" : "tensor", split.parts},
                         {"input", graph.input()},
                         {"sequence", split.sequence},
                         {"parameters", graph.parameter_count()},
                         {"parameters_of_rank", parameters_by_rank(graph, mesh)},
                         {"layers", std::move(layers)}};
  if (!mesh.stages.empty()) json["stages"] = names_of_stages(graph, mesh.stages);
  if (!split.hybrid) return json;
  const HybridBytes bytes = hybrid_bytes(graph, split);
  json["batch"] = split.batch;
  json["bytes_of_step"] = {{"activations", bytes.activations}, {"gradients", bytes.gradients}};
  return json;
}

}  // namespace paceline::graph

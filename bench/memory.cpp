// What a rank of four holds at most under ZeRO's stages, category by category, beside the formulas of docs/memory.md: a gpt of about a
// hundred million parameters with AdamW, its ranks threads of this process, its bytes counted in our own allocations
// (train/memory_measure.h).
//
// The goals: every stage's peak within a tenth of the formula, and the state of stage 3, with what is under way, at most 1.15/4 of plain
// data parallelism's. Of communication the counters know nothing, so it is left out on both sides.
//
// PyTorch's counterparts are processes, whose peak is that of their resident memory: what they need for communication is in it.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/base/text.h"
#include "paceline/memory/estimate.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/memory_measure.h"
#include "paceline/train/memory_plan.h"
#include "peer.h"

namespace paceline::bench {
namespace {

using memory::Category;

constexpr int kMemoryRanks = 4;
constexpr std::int64_t kMemorySteps = 3, kContext = 64;
constexpr double kTolerance = 0.1, kStateShare = 1.15;

/// A text for samples that nobody looks at.
std::filesystem::path write_text(const TemporaryFolder& folder) {
  const std::filesystem::path path = folder / "text.txt";
  std::ofstream text(path);
  for (int i = 0; i < 1 << 15; ++i) text << static_cast<char>('a' + (i * i + i / 7) % 26);
  if (!text.flush()) throw ConfigError(fmt::format("cannot write {}", path.string()));
  return path;
}

train::Recipe recipe_of(const Options& options, const std::filesystem::path& text, int stage) {
  train::Recipe recipe;
  recipe.model.network = "gpt", recipe.model.layers = 32, recipe.model.width = 512, recipe.model.heads = 8, recipe.model.dropout = 0;
  if (const std::vector<std::string> items = items_of(options.sizes); !items.empty()) {
    const bool numbers = items.size() == 2 && std::ranges::all_of(items, [](const std::string& item) {
                           return item.find_first_not_of("0123456789") == std::string::npos && item.size() < 6;
                         });
    if (numbers) recipe.model.layers = std::stoll(items[0]), recipe.model.width = std::stoll(items[1]);
    if (!numbers || recipe.model.layers < 1 || recipe.model.width < 8 || recipe.model.width % 8 != 0)
      throw ConfigError(
          fmt::format("bench memory --sizes '{}' is not LAYERS,WIDTH with a width divisible by 8, for example 32,512", options.sizes));
  }
  recipe.data.name = "text", recipe.data.root = text.string(), recipe.data.context = kContext;
  recipe.data.batch = kMemoryRanks * (options.batch > 0 ? options.batch : 1);
  recipe.optim.name = "adamw", recipe.optim.rate = 1e-4;
  recipe.train.device = "cpu", recipe.train.threads = options.threads;
  recipe.parallel.workers = kMemoryRanks, recipe.parallel.zero = stage;
  recipe.strategy.name = "allreduce";
  if (stage == 0) recipe.strategy.update = "whole";  // nobody's work is another's
  return recipe;
}

std::int64_t counted(const memory::Bytes& bytes) { return bytes.total() - bytes[Category::communication]; }

std::string yes_or_no(bool reached) { return reached ? "yes" : "no"; }

/// PyTorch's counterparts of the same gpt; a row with the reason for what its version cannot do.
void add_memory_peers(std::vector<Row>& rows, const std::string& python, const train::Recipe& recipe, std::int64_t vocabulary) {
  const nlohmann::json modes = run_peer_with(python, "pytorch_memory.py",
                                             {{"workers", kMemoryRanks},
                                              {"layers", recipe.model.layers},
                                              {"width", recipe.model.width},
                                              {"heads", recipe.model.heads},
                                              {"vocabulary", vocabulary},
                                              {"positions", kContext},
                                              {"batch", recipe.data.batch / kMemoryRanks},
                                              {"steps", kMemorySteps}})
                                   .at("modes");
  for (const ZeroPeer& peer : kZeroPeers) {
    const nlohmann::json& found = modes.at(peer.mode);
    Row row = {{"stage", peer.stage}, {"peer", peer.name}};
    if (found.contains("reason")) {
      row["reason"] = found.at("reason");
    } else {
      const auto bytes = found.at("bytes").get<double>();
      row["peak_mb"] = bytes / 1e6;
      if (modes.at("ddp").contains("bytes")) row["peak_of_plain"] = bytes / modes.at("ddp").at("bytes").get<double>();
    }
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Row> bench_memory(const Options& options, const Say& say) {
  const TemporaryFolder folder;
  const std::filesystem::path text = write_text(folder);
  const std::string python = options.peer ? python_if_any(options) : "";
  std::vector<Row> rows;
  double plain = 0, plain_peak = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    const train::Recipe recipe = recipe_of(options, text, stage);
    say(fmt::format("gpt of {} layers and width {}, {} ranks, ZeRO {}", recipe.model.layers, recipe.model.width, kMemoryRanks, stage));
    const graph::Graph graph = train::graph_for(recipe.model, train::make_datasets(recipe).training->info());
    const memory::Bytes formula = memory::largest(memory::estimate(graph, train::plan_of(recipe))).bytes;
    const std::vector<memory::Bytes> ranks = train::measure_memory(recipe, kMemorySteps);
    const memory::Bytes& most = *std::ranges::max_element(ranks, {}, counted);
    const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    const double share = mb(counted(most)) / mb(counted(formula));
    if (stage == 0) plain = mb(most.state()), plain_peak = mb(counted(most));
    Row row = {{"stage", stage}, {"peer", ""}, {"parameters_m", static_cast<double>(graph.parameter_count()) / 1e6}};
    for (const Category category : {Category::parameters, Category::gradients, Category::moments, Category::activations, Category::buffers})
      row[fmt::format("{}_mb", memory::name_of(category))] = mb(most[category]);
    row["peak_mb"] = mb(counted(most)), row["formula_mb"] = mb(counted(formula)), row["of_formula"] = share;
    row["within_10%"] = yes_or_no(std::abs(share - 1) <= kTolerance);
    row["peak_of_plain"] = mb(counted(most)) / plain_peak;
    row["state_of_plain"] = mb(most.state()) / plain;
    row["state_at_most_1.15/4"] = stage == 3 ? Row(yes_or_no(mb(most.state()) <= kStateShare / kMemoryRanks * plain)) : Row();
    rows.push_back(std::move(row));
  }
  if (python.empty()) return rows;
  say("the same in PyTorch");
  const train::Recipe recipe = recipe_of(options, text, 0);
  add_memory_peers(rows, python, recipe, train::make_datasets(recipe).training->info().classes);
  return rows;
}

}  // namespace paceline::bench

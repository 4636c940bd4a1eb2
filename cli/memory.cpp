// paceline memory RECIPE: where the memory of a run goes, by formulas and, with --measure, in a few steps.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "network_word.h"
#include "paceline/base/error.h"
#include "paceline/memory/fit.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/program/train_plan.h"
#include "paceline/train/memory_measure.h"
#include "paceline/train/mesh_advice.h"
#include "paceline/train/workers.h"

namespace paceline::cli {
namespace {

using memory::Category;
using Json = nlohmann::ordered_json;

struct MemoryFlags {
  std::vector<std::string> words;  // a network or a recipe, and settings
  std::string mesh;
  std::int64_t workers = 0;
  bool json = false, measure = false;
};

constexpr int kWorkers[] = {2, 8, 64};

/// The recipe, which a run accepts. A network's key in place of a file means a recipe of that network with Adam.
train::Recipe read_recipe(MemoryFlags flags) {
  refuse_unknown_networks(flags.words);
  train::Recipe recipe;
  const auto network = std::ranges::find_if(flags.words, names_network);
  if (network != flags.words.end()) {
    recipe.model.network = *network, recipe.optim.name = "adamw", recipe.data.name = "random";
    flags.words.erase(network);
  }
  Config config = recipe.config();
  read_settings(config, flags.words);
  if (!flags.mesh.empty()) set_mesh(recipe.parallel, flags.mesh, flags.words);
  if (flags.workers > 0) recipe.parallel.workers = flags.workers;
  if (recipe.strategy.name == strategies::kPlan) recipe.strategy.name = strategies::kAuto;  // on the mesh that was asked about
  return train::resolve_for(recipe, {});
}

std::string bar(std::int64_t bytes, std::int64_t most, int width = 40) {
  const auto eighths = static_cast<int>(most > 0 ? 8.0 * width * static_cast<double>(bytes) / static_cast<double>(most) + 0.5 : 0);
  constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kParts[eighths % 8];
}

std::string micro_batches(std::int64_t count) { return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es"); }

std::string described(const memory::Plan& plan) {
  return fmt::format("data {} × pipeline {} × tensor {}, ZeRO {}, {} samples per rank in {}, {} bytes per parameter, recompute {}",
                     plan.data, plan.pipeline, plan.tensor, plan.zero, plan.samples, micro_batches(plan.micro_batches), plan.storage,
                     plan.recompute);
}

/// What does not travel: not every buffer of what does is counted (docs/memory.md).
std::int64_t staying(const memory::Bytes& bytes) { return bytes.total() - bytes[Category::communication]; }

std::string share(std::int64_t bytes, std::int64_t formula) {
  return formula > 0 ? fmt::format("{:.0f}%", 100.0 * static_cast<double>(bytes) / static_cast<double>(formula)) : "";
}

/// `measured`: the peak over the ranks of this kind; null if nothing was measured.
std::string kind_text(const memory::RankKind& kind, std::int64_t most, const memory::Bytes* measured) {
  std::string text = fmt::format("  {}{}: {}, {:.4g} M parameters, {} in flight\n", kind.name,
                                 kind.ranks > 1 ? fmt::format(" ({} ranks)", kind.ranks) : "", memory::readable(kind.bytes.total()),
                                 static_cast<double>(kind.parameters) / 1e6, micro_batches(kind.in_flight));
  const auto add_line = [&](std::string_view name, const std::string& formula, const std::string& held, const std::string& of_formula,
                            const std::string& picture) {
    std::string line = fmt::format("    {:<14}{:>9}", name, formula);
    if (measured) line += fmt::format("{:>10}{:>6}", held, of_formula);
    line += "  " + picture;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  if (measured) add_line("", "formula", "measured", "", "");
  for (std::size_t i = 0; i < memory::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const std::int64_t formula = kind.bytes[category], held = measured ? (*measured)[category] : 0;
    add_line(memory::name_of(category), memory::readable(formula), memory::readable(held), share(held, formula), bar(formula, most));
  }
  if (measured) {
    const std::int64_t formula = staying(kind.bytes), held = staying(*measured);
    add_line("what stays", memory::readable(formula), memory::readable(held), share(held, formula), "");
  }
  return text;
}

/// ZeRO's stages for several worker counts: by the textbook formulas, and with this project's memory layout.
std::string stages_text(const graph::Graph& graph, memory::Plan plan) {
  const std::int64_t m = graph.parameter_count();
  const memory::SlidesCount slides = memory::slides_count(m, 0, 1);
  std::string text = fmt::format(
      "\n  The decks' count, fp16 and Adam: 2M parameters + 2M gradients + 16M optimizer = {} + {} + {} = {}\n"
      "  State of a rank, that count / as held here:\n    {:<10}",
      memory::readable(slides.parameters), memory::readable(slides.gradients), memory::readable(slides.optimizer),
      memory::readable(slides.total()), "workers");
  for (int zero = 0; zero <= 3; ++zero) text += fmt::format("{:>24}", zero == 0 ? "no ZeRO" : fmt::format("ZeRO {}", zero));
  plan.shared_updates = false;  // the effect of the stage alone, whatever the host does
  for (const int workers : kWorkers) {
    text += fmt::format("\n    {:<10}", workers);
    for (plan.zero = 0; plan.zero <= 3; ++plan.zero) {
      plan.data = workers;
      const auto kinds = memory::estimate(graph, plan);
      text += fmt::format("{:>24}", fmt::format("{} / {}", memory::readable(memory::slides_count(m, plan.zero, workers).total()),
                                                memory::readable(memory::largest(kinds).bytes.state())));
    }
  }
  return text + "\n";
}

Json bytes_json(const memory::Bytes& bytes) {
  Json row;
  for (std::size_t i = 0; i < memory::kCategories; ++i) row[std::string(memory::name_of(static_cast<Category>(i)))] = bytes.of[i];
  return row;
}

Json json_of(const graph::Graph& graph, const memory::Plan& plan, const std::vector<memory::RankKind>& kinds) {
  Json document = {{"network", graph.network()},
                   {"parameters", graph.parameter_count()},
                   {"mesh", {{"data", plan.data}, {"pipeline", plan.pipeline}, {"tensor", plan.tensor}}},
                   {"zero", plan.zero},
                   {"recompute", plan.recompute}};
  for (const memory::RankKind& kind : kinds) {
    Json row = {{"ranks", kind.name}, {"count", kind.ranks}, {"parameters", kind.parameters}, {"total", kind.bytes.total()}};
    row["bytes"] = bytes_json(kind.bytes);
    document["formula"].push_back(std::move(row));
  }
  for (const int workers : kWorkers)
    for (int zero = 0; zero <= 3; ++zero)
      document["slides"].push_back(
          {{"workers", workers}, {"zero", zero}, {"bytes", memory::slides_count(graph.parameter_count(), zero, workers).total()}});
  return document;
}

/// For each kind of rank, the peak of any of its ranks, by category. The ranks of a stage are consecutive (comm/mesh.h).
std::vector<memory::Bytes> most_of_kinds(const std::vector<memory::Bytes>& measured, std::size_t kinds) {
  std::vector<memory::Bytes> most(measured.empty() ? 0 : kinds);
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    memory::Bytes& kind = most[rank * kinds / measured.size()];
    for (std::size_t i = 0; i < memory::kCategories; ++i) kind.of[i] = std::max(kind.of[i], measured[rank].of[i]);
  }
  return most;
}

int run_memory(const MemoryFlags& flags) {
  const train::Recipe recipe = read_recipe(flags);
  const graph::Graph graph = flags.measure ? network_for_data(recipe) : network_of(recipe, flags.words);
  const auto [plan, kinds] = train::estimate_run(recipe, graph);
  const std::vector<memory::Bytes> measured =
      flags.measure ? observe::patiently("measuring a few steps", [&] { return train::measure_memory(recipe); })
                    : std::vector<memory::Bytes>();
  if (flags.json) {
    Json document = json_of(graph, plan, kinds);
    for (const memory::Bytes& rank : measured) document["measured"].push_back(bytes_json(rank));
    print_json(document);
    return kDone;
  }
  std::int64_t most = 0;
  for (const memory::RankKind& kind : kinds) most = std::max(most, std::ranges::max(kind.bytes.of));
  std::cout << fmt::format("{}: {:.4g} M parameters\n  {}\n\n", graph.network(), static_cast<double>(graph.parameter_count()) / 1e6,
                           described(plan));
  const std::vector<memory::Bytes> held = most_of_kinds(measured, kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) std::cout << kind_text(kinds[i], most, held.empty() ? nullptr : &held[i]);
  std::cout << stages_text(graph, plan);
  return kDone;
}

}  // namespace

Action add_memory(CLI::App& app) {
  auto flags = std::make_shared<MemoryFlags>();
  app.add_option("RECIPE", flags->words, "a recipe file or a network, and any settings as section.key=value");
  app.add_option("-n,--workers", flags->workers, "number of workers (parallel.workers)")->check(whole_number(1));
  app.add_option(
         "--mesh", flags->mesh,
         "sizes of the mesh, for example data=2,pipeline=2,tensor=2 (the same as parallel.data, parallel.pipeline, parallel.tensor, "
         "which must not contradict it on the command line)")
      ->type_name(kMesh);
  app.add_flag("--measure", flags->measure, "train a few steps with the ranks as threads, and print the memory that they really used");
  add_json_flag(app, flags->json);
  add_examples(app,
               {"paceline memory recipes/mnist_lenet5.toml data.root=DIR",
                "paceline memory gpt model.layers=24 model.width=1792 model.heads=14 model.classes=50257 model.input=[1024] data.batch=8",
                "paceline memory gpt model.layers=24 model.width=1792 model.heads=14 --mesh data=8 parallel.zero=3",
                "paceline memory gpt model.layers=4 data.name=text data.root=FILE --mesh data=4 parallel.zero=3 --measure",
                "paceline memory resnet18 model.input=[3,32,32] model.classes=10 train.recompute=units --json"});
  return [flags] { return run_memory(*flags); };
}

}  // namespace paceline::cli

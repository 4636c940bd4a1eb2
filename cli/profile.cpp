// paceline profile NETWORK|RECIPE: measures what the units of a network cost on this device, by batch size, with the passes of a real run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "command.h"
#include "measured_file.h"
#include "network_word.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/measure/network_profile.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/tensor/recorded.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/step_measure.h"
#include "profile_steps.h"

namespace paceline::cli {
namespace {

struct ProfileFlags {
  std::vector<std::string> words;  // a network or a recipe, and settings
  std::string batches = "8,32,128", workers = "1", precisions, optimizers = "sgd,adamw", out, steps;
  std::int64_t step_batch = 0;
  double seconds = 1;
  bool json = false;
};

/// The recipe. A network's key in place of a file means that network, with its default input.
train::Recipe profiled_recipe(ProfileFlags flags) {
  if (flags.words.empty()) throw ConfigError("name a network or a recipe file; `paceline list networks` lists the networks");
  refuse_unknown_networks(flags.words);
  train::Recipe recipe;
  if (const std::string first = flags.words.front(); names_network(first)) {
    recipe.model.network = first;
    flags.words.erase(flags.words.begin());
  }
  Config config = recipe.config();
  read_settings(config, flags.words);
  recipe.parallel = {};  // every worker has the whole network
  recipe.strategy.name = strategies::kSingle;
  return recipe;
}

/// The shape of samples: that of the recipe's data if a recipe was given, otherwise the network's default.
data::Info info_of(const train::Recipe& recipe, bool of_data) {
  if (of_data) return train::make_datasets(recipe).training->info();
  const graph::Graph graph = graph::make_graph(recipe.model);
  const auto is_embedding = [](const graph::Layer& layer) { return layer.kind == graph::Kind::embedding; };
  return {.key = "network",
          .input = graph.input(),
          .classes = graph.output().back(),
          .tokens = std::ranges::any_of(graph.layers(), is_embedding),
          .mean = {},
          .deviation = {}};
}

bool names_data(const ProfileFlags& flags) {
  const auto is_name = [](const std::string& word) { return word.starts_with("data.name="); };
  return !names_network(flags.words.front()) || std::ranges::any_of(flags.words, is_name);
}

/// What to measure, after everything was read and validated.
struct Measurement {
  train::Recipe recipe;
  data::Info info;
  bool has_data = false;  // data of the shape that the network takes
  std::vector<std::int64_t> workers;
  std::vector<perf::Precision> precisions;
  measure::NetworkProfileOptions options;
};

Measurement measurement_of(const ProfileFlags& flags, const comm::World& world) {
  Measurement made;
  made.recipe = profiled_recipe(flags);
  made.info = info_of(made.recipe, names_data(flags));
  made.has_data = names_data(flags) || !made.info.tokens;
  if (!names_data(flags) && made.has_data) {  // random images
    made.recipe.data.name = "random";
    made.recipe.data.shape.assign(made.info.input.begin(), made.info.input.end()), made.recipe.data.classes = made.info.classes;
  }
  made.options = {.batches = whole_list(flags.batches, "--batch", 1 << 20), .seconds = flags.seconds};
  made.workers = world.size > 1 ? std::vector<std::int64_t>{1} : whole_list(flags.workers, "--workers", 1024);
  const c10::Device device = tensor::parse_device(made.recipe.train.device);
  for (const std::string& name : items_of(flags.precisions.empty() ? made.recipe.train.precision : flags.precisions)) {
    made.precisions.push_back(perf::precision_named(name));
    tensor::parse_precision(name, device);
  }
  for (const std::string& name : items_of(flags.optimizers)) {
    made.options.optimizers.push_back(made.recipe.optim);
    made.options.optimizers.back().name = std::string(find(optim::optimizers(), "optimizer", name).key);
    validate(made.options.optimizers.back());
  }
  if (made.precisions.empty() || made.options.optimizers.empty())
    throw ConfigError("--precision and --optimizers each need at least one name");
  return made;
}

perf::ProfileTable profile_pieces(const Measurement& of, const train::Recipe& recipe, const measure::Rank& rank) {
  train::configure_libtorch(recipe, rank.threads);
  const SteadyClock clock;
  const auto alone = std::move(comm::local_group(1).front());
  const comm::Mesh mesh(*alone);
  const tensor::OwnStream stream(tensor::parse_device(recipe.train.device));
  const auto model = train::make_model(recipe, {}, of.info, mesh, "", clock).model;
  const graph::Graph graph = train::graph_for(recipe.model, of.info);
  return measure::profile_network(
      *model, nn::SoftmaxLoss(recipe.train.label_smoothing),
      [&](std::int64_t samples) { return measure::random_batch(graph, samples, model->device()); }, of.options, rank, clock);
}

double total(const perf::ProfileTable& table, double perf::UnitSeconds::*pass, std::int64_t samples) {
  double sum = 0;
  for (const perf::UnitProfile& unit : table.units) sum += unit.seconds.at(samples).*pass;
  return sum;
}

/// How much longer a whole step of a run takes than the sum of its units in the table. Every rank trains by itself, all at the same time.
void measure_around(const Measurement& of, train::Recipe recipe, const measure::Rank& rank, perf::ProfileTable& table) {
  constexpr std::int64_t kLeast = 12, kMost = 200;   // steps
  constexpr int kRuns = 3;                           // where these steps are over in less than kShort, as others' bursts of work are
  constexpr double kShort = 1, kLeastSeconds = 0.1;  // seconds
  recipe.optim = of.options.optimizers.front();
  const auto parameters = [](double sum, const perf::UnitProfile& unit) { return sum + static_cast<double>(unit.parameters); };
  const double update = update_seconds(table, recipe.optim.name, std::accumulate(table.units.begin(), table.units.end(), 0.0, parameters));
  for (const std::int64_t samples : of.options.batches) {
    rank.tell(fmt::format("whole steps of batch {}", samples));
    const double pieces = total(table, &perf::UnitSeconds::forward, samples) + total(table, &perf::UnitSeconds::backward, samples) + update;
    recipe.data.batch = samples, recipe.data.test_samples = 1;
    if (data::kind_of(recipe.data).is_noise) recipe.data.train_samples = std::max<std::int64_t>(2 * samples, 64);
    const auto wanted = static_cast<std::int64_t>(std::max(of.options.seconds, kLeastSeconds) / std::max(pieces, 1e-9));
    const std::int64_t steps = rank.agreed(std::clamp(wanted, kLeast, kMost));
    const std::int64_t runs = rank.agreed(static_cast<double>(steps) * pieces < kShort ? kRuns : 1);
    rank.meet();
    table.around_s[samples] = rank.mean(train::measure_step(recipe, rank.threads, steps, static_cast<int>(runs))) - pieces;
  }
}

perf::ProfileTable profile_once(const Measurement& of, perf::Precision precision, const measure::Rank& rank) {
  train::Recipe recipe = of.recipe;
  recipe.train.precision = std::string(name_of(precision));
  perf::ProfileTable table = profile_pieces(of, recipe, rank);
  table.precision = precision;
  if (of.has_data) measure_around(of, recipe, rank, table);
  return table;
}

/// Replaces tables of the same precision and worker count; keeps the others.
perf::Profile merged(perf::Profile fresh, const std::string& file) {
  std::error_code code;
  if (file == "-" || !std::filesystem::exists(file, code)) return fresh;
  perf::Profile known = perf::find_profile(file);
  if (known.network != fresh.network || known.device != fresh.device)
    throw ConfigError(fmt::format("{} is a profile of {} on {}, not of {} on {}; use -o to name another file", file, known.network,
                                  known.device, fresh.network, fresh.device));
  for (perf::ProfileTable& table : fresh.tables) {
    std::erase_if(known.tables, [&](const auto& other) { return other.precision == table.precision && other.workers == table.workers; });
    known.tables.push_back(std::move(table));
  }
  return known;
}

std::string table_text(const perf::ProfileTable& table) {
  std::string text = fmt::format("\n  {}, {} with {} each; milliseconds of forward + backward\n    {:<20}{:>12}", name_of(table.precision),
                                 plural(table.workers, "worker"), plural(table.threads, "thread"), "unit", "parameters");
  const auto& batches = table.units.front().seconds;
  for (const auto& [samples, seconds] : batches) text += fmt::format("{:>20}", fmt::format("batch {}", samples));
  const auto cell = [](double forward, double backward) { return fmt::format("{:.3f} + {:.3f}", forward * 1e3, backward * 1e3); };
  std::int64_t parameters = 0;
  for (const perf::UnitProfile& unit : table.units) {
    text += fmt::format("\n    {:<20}{:>12}", unit.name, show_count(unit.parameters));
    for (const auto& [samples, seconds] : unit.seconds) text += fmt::format("{:>20}", cell(seconds.forward, seconds.backward));
    parameters += unit.parameters;
  }
  text += fmt::format("\n    {:<20}{:>12}", "all", show_count(parameters));
  for (const auto& [samples, seconds] : batches)
    text += fmt::format("{:>20}",
                        cell(total(table, &perf::UnitSeconds::forward, samples), total(table, &perf::UnitSeconds::backward, samples)));
  for (const auto& [optimizer, seconds] : table.update_s)
    text += fmt::format("\n    update by {}: {:.3f} ms", optimizer, seconds * static_cast<double>(parameters) * 1e3);
  if (!table.around_s.empty()) text += "\n    a whole step on top of that:";
  for (const auto& [samples, seconds] : table.around_s) text += fmt::format(" {:+.3f} ms at batch {}", seconds * 1e3, samples);
  return text + "\n";
}

/// What `--steps` asks for; nullopt without it.
std::optional<ProfiledRuns> runs_of(const ProfileFlags& flags, const Measurement& of, const comm::World& world) {
  if (flags.steps.empty()) return std::nullopt;
  if (world.size > 1) throw ConfigError("--steps trains with the threads of one process; start it without a launcher");
  if (!of.has_data) throw ConfigError("--steps needs data to train on; add for example data.name=text data.root=FILE");
  ProfiledRuns runs{.words = flags.words, .workers = whole_list(flags.steps, "--steps", 1024), .seconds = 2 * flags.seconds};
  runs.batch = flags.step_batch > 0 ? flags.step_batch : std::ranges::max(of.options.batches);
  runs.cores = world.cores;
  if (names_network(runs.words.front())) runs.words.front().insert(0, "model.network=");
  if (!names_data(flags))
    runs.words.insert(runs.words.end(), {"data.name=random", fmt::format("data.shape={}", of.recipe.data.shape),
                                         fmt::format("data.classes={}", of.recipe.data.classes)});
  if (data::kind_of(of.recipe.data).is_noise) runs.words.push_back(fmt::format("data.train_samples={}", 8 * runs.batch));
  runs.words.push_back("optim.name=" + of.options.optimizers.front().name);
  return runs;
}

/// Seconds that a worker's passes take for a batch.
double passes_seconds(const perf::ProfileTable& table, std::int64_t samples) {
  double sum = 0;
  for (std::size_t unit = 0; unit < table.units.size(); ++unit)
    for (const auto work : {schedule::Action::Work::forward, schedule::Action::Work::backward})
      sum += perf::seconds_of(table, unit, work, static_cast<double>(samples)).seconds;
  return sum;
}

int run_profile(const ProfileFlags& flags) {
  const comm::World world = comm::discover();
  const Measurement measurement = measurement_of(flags, world);
  std::optional<ProfiledRuns> runs = runs_of(flags, measurement, world);
  const std::string network = measurement.recipe.model.network, file = flags.out.empty() ? network + ".profile.json" : flags.out;
  perf::Profile profile{
      .network = network, .device = plain_name(tensor::device_name(tensor::parse_device(measurement.recipe.train.device))), .tables = {}};
  if (world.rank == 0) {
    merged(profile, file);  // fails now rather than after minutes of measuring
    if (file != "-") ensure_writable_folder(std::filesystem::absolute(file).parent_path());
  }
  {
    observe::MeasuringLine line;
    for (const std::int64_t workers : measurement.workers)
      for (const perf::Precision precision : measurement.precisions) {
        const auto say = [&](const std::string& what) {
          line.say(fmt::format("{}, {}, {}, {}", network, name_of(precision), plural(workers, "worker"), what));
        };
        perf::ProfileTable first;
        measure::play(world, static_cast<int>(workers), measurement.recipe.comm, say, [&](measure::Rank& rank) {
          perf::ProfileTable table = profile_once(measurement, precision, rank);
          if (rank.leads()) first = std::move(table);
        });
        profile.tables.push_back(std::move(first));
      }
  }
  if (world.rank != 0) return kDone;
  const std::vector<perf::ProfileTable> fresh = profile.tables;
  profile = merged(std::move(profile), file);
  if (file != "-") write_atomically(file, to_json(profile));
  std::vector<std::string> steps;
  if (runs) {
    observe::MeasuringLine line;
    runs->step_s = passes_seconds(fresh.front(), runs->batch);
    steps = profile_steps(*runs, train::graph_for(measurement.recipe.model, measurement.info), line);
  }
  if (flags.json || file == "-") {
    std::cout << to_json(profile);
    return kDone;
  }
  std::cout << fmt::format("{} on {}, measured\n", network, profile.device);
  for (const perf::ProfileTable& table : fresh) std::cout << table_text(table);
  if (runs) std::cout << fmt::format("\n  whole steps of batch {}\n{}\n", runs->batch, fmt::join(steps, "\n"));
  std::cout << fmt::format("\n  written to {}\n", file);
  return kDone;
}

}  // namespace

Action add_profile(CLI::App& app) {
  auto flags = std::make_shared<ProfileFlags>();
  app.add_option("NETWORK", flags->words, "a network or a recipe file, and any settings as section.key=value");
  app.add_option("--batch", flags->batches, "batch sizes to measure, separated by commas (default 8,32,128)")->type_name(kNumberList);
  app.add_option(
         "-n,--workers", flags->workers,
         "numbers of workers that compute at the same time on this host, each with its share of the cores, for example 1,2,4 (default 1)")
      ->type_name(kNumberList);
  app.add_option("--precision", flags->precisions, "precisions, separated by commas (default: the recipe's, else fp32)")
      ->type_name(kNameList)
      ->check(known_values({"fp32", "tf32", "bf16"}));
  app.add_option("--optimizers", flags->optimizers, "optimizers whose updates to measure, separated by commas (default sgd,adamw)")
      ->type_name(kNameList);
  app.add_option("--seconds", flags->seconds, "seconds per batch size (default 1)")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--steps", flags->steps,
                 "also train whole steps of every kind of run with these numbers of workers, for example 2,4; later predictions and plans "
                 "are corrected by them")
      ->type_name(kNumberList);
  app.add_option("--step-batch", flags->step_batch, "with --steps: samples per step over all workers (default: the largest of --batch)")
      ->check(whole_number(1));
  app.add_option("-o,--out", flags->out, "file to write or extend (default NETWORK.profile.json; - prints it)")->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(app,
               {"paceline profile lenet5", "paceline profile resnet18 model.input=[3,32,32] model.classes=10 --batch 16,64 --workers 1,2",
                "paceline profile mlp --workers 1,2 --steps 2,4 --step-batch 128",
                "paceline profile gpt train.device=cuda --precision bf16,tf32 -o gpt.json", "paceline run -np 2 paceline profile mlp"});
  return [flags] { return run_profile(*flags); };
}

}  // namespace paceline::cli

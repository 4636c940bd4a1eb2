// What a strategy's program says is what its step does: passes, operations, bytes, waits and their order, on every axis of the mesh.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/step/batch_pass.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/step_settings.h"
#include "step_record.h"
#include "support.h"

namespace paceline::train {
namespace {

using schedule::Action;

struct ProgramCase {
  std::string name;
  std::vector<std::string> settings;
};

std::string some_text() {
  static const Folder folder;
  const auto file = folder / "text.txt";
  std::ofstream text(file);
  for (int i = 0; i < 90; ++i) text << "the quick brown fox jumps over lazy dogs " << i % 8 << '\n';
  return file.string();
}

Recipe program_recipe(const ProgramCase& one) {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {24, 20, 16, 24, 20, 16, 12};
  recipe.data.batch = 32;
  recipe.strategy.bucket_mb = 0.004;
  const auto is = [&](const char* network) { return std::ranges::find(one.settings, network) != one.settings.end(); };
  if (is("model.network=gpt")) {
    recipe.data.name = "text", recipe.data.root = some_text(), recipe.data.context = 8;
    recipe.model.layers = 4, recipe.model.width = 16, recipe.model.heads = 4;
  }
  if (is("model.network=resnet18")) recipe.data.shape = {3, 16, 16}, recipe.model.multiplier = 0.125;
  Config config = recipe.config();
  for (const std::string& setting : one.settings) config.set(setting);
  recipe.parallel.workers = recipe.parallel.workers_of_mesh();
  recipe.strategy.name = strategies::resolve(recipe.strategy.name, static_cast<int>(recipe.parallel.data_workers()));
  validate(recipe);
  return recipe;
}

step::Batch batch_of(const graph::Graph& graph, std::int64_t samples, std::int64_t all) {
  std::vector<std::int64_t> shape = {samples};
  shape.insert(shape.end(), graph.input().begin(), graph.input().end());
  const bool tokens = graph.layers()[1].kind == graph::Kind::embedding;
  const at::Tensor inputs = tokens ? at::zeros(shape, at::kLong) : at::ones(shape);
  return {inputs, at::zeros(tokens ? shape : std::vector<std::int64_t>{samples}, at::kLong), all};
}

using Programs = std::vector<schedule::Program>;  // by stage

constexpr std::int64_t kPeriod = 3;  // of the strategies that meet now and then: their programs are of steps with a meeting

/// Calls `look` with every rank's record of each of the steps that are held against the programs.
void record_steps(const Recipe& recipe, const Datasets& data, const Programs& programs, const std::vector<Pace>& paces, bool overlap,
                  const std::function<void(std::size_t rank, const StepRecord& record)>& look) {
  const int ranks = static_cast<int>(recipe.parallel.workers);
  comm::CommConfig patient;
  patient.deadline_s = 300;  // a rank whose lane is kept waiting for what never comes says so before others give up on it
  auto group = comm::local_group(ranks, patient);
  std::mutex looking;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      StepRecord record;
      GroupNames names(comm::resolved(recipe.parallel.mesh(), ranks));
      RecordedComm everyone(std::move(group[static_cast<std::size_t>(rank)]), record, names);
      const comm::Mesh mesh(everyone, recipe.parallel.mesh());
      const SteadyClock clock;
      observe::Bus bus;
      configure_libtorch(recipe, 1);
      Recipe whole = recipe;  // what recomputes goes around what records
      whole.train.recompute = "none";
      StagedModel staged = make_model(whole, {}, data.training->info(), mesh, "", clock);
      auto recorded = std::make_shared<RecordedModel>(staged.model, record);
      const auto model = share_out(recipe, nn::recomputing(recorded, nn::parse_recompute(recipe.train.recompute)), mesh, clock);
      const step::Context context = context_of(recipe, {}, *model, staged.stages, mesh, bus, clock);
      const auto strategy = strategies::make_strategy(strategy_of(recipe, {}, 1), context);
      const step::MicroBatch share = step::micro_batch(recipe.data.batch, mesh.data().size(), mesh.data().rank());
      const step::Batch batch = batch_of(graph_for(recipe.model, data.training->info()), share.count, recipe.data.batch);
      const auto& program = programs[static_cast<std::size_t>(mesh.pipeline().rank())];
      const std::int64_t steps = kPeriod * std::ssize(paces);
      for (std::int64_t step = 1; step <= steps; ++step) {
        const bool records = step % kPeriod == 0;
        everyone.run(comm::barrier());
        if (records) record.begin_step(order_of(program, overlap), paces[static_cast<std::size_t>(step / kPeriod - 1)]);
        strategy->step(batch, {.step = step, .rate = 0.01});
        if (!records) continue;
        record.end_step();
        const std::lock_guard lock(looking);
        look(static_cast<std::size_t>(rank), record);
      }
      everyone.run(comm::barrier());  // nobody leaves while others still send to it
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::string> texts_of(const std::vector<StepEvent>& events) {
  std::vector<std::string> texts;
  for (const StepEvent& event : events) texts.push_back(event.text);
  return texts;
}

/// The collectives of a unit, each axis by itself.
std::vector<std::string> by_axis(std::vector<std::string> texts) {
  const auto is_pass = [](const std::string& text) { return text.find(" of unit ") != std::string::npos; };
  const auto is_tensor = [](const std::string& text) { return text.starts_with("tensor "); };
  for (auto from = texts.begin(); from != texts.end();) {
    const auto end = std::find_if(from + 1, texts.end(), is_pass);
    std::stable_partition(from + 1, end, is_tensor);
    from = end;
  }
  return texts;
}

/// Elements that a rank of this stage updates.
std::int64_t updated(const schedule::Program& program) {
  std::int64_t sum = 0;
  for (const Action& action : program) sum += action.work == Action::Work::update ? action.elements : 0;
  return sum;
}

/// Those that it holds, its share where data-parallel ranks share them.
std::int64_t to_update(const RecipeStep& step, std::size_t stage) {
  const schedule::ProgramSettings& settings = step.settings[0];
  const auto units = static_cast<int>(step.model.units.size());
  const std::vector<int> held = settings.stages.empty() ? std::vector<int>{0, units} : settings.stages[stage];
  const bool shared = settings.data > 1 && (settings.zero > 0 || settings.sharded_update);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < held.size(); i += 2)
    for (int unit = held[i]; unit < held[i + 1]; ++unit) {
      const auto& each = step.model.units[static_cast<std::size_t>(unit)];
      const std::int64_t common = each.parameters() - each.private_parameters();
      sum += each.private_parameters() + (shared ? common / settings.data : common);
    }
  return sum;
}

class StepProgram : public testing::TestWithParam<ProgramCase> {};

TEST_P(StepProgram, IsWhatTheStepDoes) {
  const Recipe recipe = program_recipe(GetParam());
  const Datasets data = make_datasets(recipe);
  const RecipeStep step = step_of(recipe, graph_for(recipe.model, data.training->info()));
  ASSERT_EQ(step.settings.size(), 1U);
  const std::vector<schedule::Program> programs = step.programs(step.settings[0]);
  ASSERT_EQ(std::ssize(programs), step.settings[0].pipeline);
  for (const schedule::Program& program : programs) check(program, step.model);
  const std::size_t per_stage = static_cast<std::size_t>(recipe.parallel.workers) / programs.size();
  for (std::size_t stage = 0; stage < programs.size(); ++stage) EXPECT_EQ(updated(programs[stage]), to_update(step, stage));
  // The reduction that stale_sync has beside its passes left in an earlier step.
  const bool reaches_back = recipe.strategy.name == "stale_sync";
  // Buckets of stage 2 fill up between the collectives of a unit, behind which the program has them all.
  const bool mixes = recipe.parallel.zero == 2 && recipe.parallel.tensor > 1;
  const std::vector<Pace> paces = reaches_back || mixes ? std::vector{Pace::freely} : std::vector{Pace::lanes_soon, Pace::lanes_late};
  record_steps(recipe, data, programs, paces, step.settings[0].overlap, [&](std::size_t rank, const StepRecord& record) {
    if (recipe.strategy.name == "ad_psgd" && rank % 2 == 1) return;  // it answers, beside its steps
    SCOPED_TRACE(testing::Message() << "rank " << rank << "\n" << to_text(programs[rank / per_stage]));
    const auto shown = [&](const std::vector<std::string>& texts) {
      return fmt::format("{}", fmt::join(mixes ? by_axis(texts) : texts, "\n"));  // as lines, whose difference is shown
    };
    EXPECT_EQ(shown(texts_of(record.order().thread)), shown(record.thread()));
    EXPECT_EQ(record.order().lanes, record.lanes());
    const StepEvent& end = record.order().thread.back();
    if (step.settings[0].overlap && !reaches_back) {
      EXPECT_EQ(end.ended, end.left) << "nothing of a step is under way when it ends";
    }
    EXPECT_THAT(record.faults(), testing::IsEmpty());
  });
}

class CompressedProgram : public testing::TestWithParam<ProgramCase> {};

/// Their codes have lengths of their own in every bucket, and some depend on the gradients: all of them together are what the program says.
TEST_P(CompressedProgram, IsWhatTheStepSends) {
  const Recipe recipe = program_recipe(GetParam());
  const Datasets data = make_datasets(recipe);
  const RecipeStep step = step_of(recipe, graph_for(recipe.model, data.training->info()));
  const Programs programs = step.programs(step.settings.at(0));
  const auto sum = [](const std::vector<std::string>& events, std::vector<std::string>& kinds) {
    double bytes = 0;
    for (const std::string& event : events) {
      const auto space = event.ends_with(" B") ? event.rfind(' ', event.size() - 3) : event.size();
      kinds.push_back(event.substr(0, space));
      if (space < event.size()) bytes += std::stod(event.substr(space));
    }
    return bytes;
  };
  record_steps(recipe, data, programs, {Pace::freely}, false, [&](std::size_t, const StepRecord& record) {
    std::vector<std::string> kinds_said, kinds_done;
    const double bytes_said = sum(texts_of(record.order().thread), kinds_said), bytes_done = sum(record.thread(), kinds_done);
    EXPECT_EQ(kinds_said, kinds_done);
    if (GetParam().name == "threshold") EXPECT_LE(bytes_done, bytes_said);  // as many as exceed it
    else EXPECT_NEAR(bytes_said / bytes_done, 1, 0.05);
  });
}

const ProgramCase kProgramCases[] = {
    {"single", {"strategy.name=single"}},
    {"two_workers", {"parallel.data=2", "strategy.update=whole", "strategy.overlap=off"}},
    {"four_workers_beside_the_pass", {"parallel.data=4", "strategy.update=whole", "strategy.overlap=on"}},
    {"sharded_update", {"parallel.data=4", "strategy.update=sharded", "strategy.overlap=on"}},
    {"accumulation", {"parallel.data=2", "train.micro_batches=3", "strategy.overlap=on"}},
    {"zero_1", {"parallel.data=4", "parallel.zero=1"}},
    {"zero_2", {"parallel.data=2", "parallel.zero=2", "train.micro_batches=2"}},
    {"zero_2_beside", {"parallel.data=2", "parallel.zero=2", "strategy.overlap=on"}},
    {"zero_3", {"parallel.data=2", "parallel.zero=3", "train.micro_batches=2"}},
    {"zero_3_units", {"parallel.data=2", "parallel.zero=3", "train.recompute=units"}},
    {"zero_3_all", {"parallel.data=2", "parallel.zero=3", "train.recompute=all", "train.micro_batches=2"}},
    {"clipped", {"parallel.data=2", "optim.clip_norm=1"}},
    {"clipped_zero", {"parallel.data=2", "parallel.zero=1", "optim.clip_norm=1"}},
    {"pipeline", {"parallel.pipeline=2", "train.micro_batches=4"}},
    {"pipeline_of_four", {"parallel.pipeline=4", "parallel.schedule=gpipe", "train.micro_batches=3"}},
    {"pipeline_with_data", {"parallel.pipeline=2", "parallel.data=2", "train.micro_batches=4", "strategy.overlap=on"}},
    {"pipeline_zero_3", {"parallel.pipeline=2", "parallel.data=2", "train.micro_batches=4", "parallel.zero=3"}},
    {"pipeline_zero_2", {"parallel.pipeline=2", "parallel.data=2", "train.micro_batches=4", "parallel.zero=2"}},
    {"interleaved", {"parallel.pipeline=2", "parallel.schedule=interleaved_1f1b", "train.micro_batches=4"}},
    {"zero_bubble",
     {"parallel.pipeline=2", "parallel.data=2", "parallel.schedule=zero_bubble", "train.micro_batches=4", "strategy.overlap=on"}},
    {"bf16_gradients", {"parallel.data=2", "comm.gradient_dtype=bf16"}},
    {"bf16_storage", {"parallel.data=2", "train.storage=bf16", "train.precision=bf16", "parallel.zero=3"}},
    {"fp32_gradients", {"parallel.data=2", "train.storage=bf16", "train.gradients=fp32", "strategy.bucket_mb=0.005", "parallel.zero=1"}},
    {"fp32_gradients_tied",
     {"parallel.pipeline=2", "parallel.data=2", "model.network=gpt", "model.tied=true", "train.micro_batches=2", "train.storage=bf16",
      "train.precision=bf16", "train.gradients=fp32"}},
    {"tensor", {"parallel.tensor=2"}},
    {"tensor_gpt", {"parallel.tensor=2", "model.network=gpt"}},
    {"tensor_gpt_recomputed", {"parallel.tensor=2", "model.network=gpt", "train.recompute=units"}},
    {"tensor_gpt_segments", {"parallel.tensor=2", "model.network=gpt", "train.recompute=all"}},
    {"tensor_gpt_sequence", {"parallel.tensor=2", "parallel.sequence=true", "model.network=gpt"}},
    {"gpt_everything", {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "model.network=gpt", "train.micro_batches=2"}},
    {"gpt_experts", {"parallel.data=2", "model.network=gpt", "model.experts=4"}},
    {"gpt_experts_sequence", {"parallel.data=2", "parallel.tensor=2", "parallel.sequence=true", "model.network=gpt", "model.experts=4"}},
    {"resnet_beside", {"parallel.data=2", "model.network=resnet18", "strategy.overlap=on", "strategy.bucket_mb=0.05"}},
    {"resnet_pipeline", {"parallel.pipeline=2", "model.network=resnet18", "train.micro_batches=2"}},
    {"hybrid", {"parallel.data=2", "parallel.hybrid=auto"}},
    {"joint_norms", {"parallel.data=2", "model.network=resnet18", "strategy.batch_norm=sync", "strategy.overlap=off"}},
    {"lars", {"parallel.data=2", "optim.name=lars"}},
    {"lars_zero", {"parallel.data=2", "parallel.zero=1", "optim.name=lars"}},
    {"lamb_tensor", {"parallel.tensor=2", "parallel.data=2", "parallel.zero=2", "model.network=gpt", "optim.name=lamb"}},
    {"lamb_tensor_data", {"parallel.tensor=2", "parallel.data=2", "model.network=gpt", "optim.name=lamb"}},
    {"lamb_clipped", {"parallel.tensor=2", "model.network=gpt", "optim.name=lamb", "optim.clip_norm=1"}},
    {"tied", {"parallel.pipeline=2", "model.network=gpt", "model.tied=true", "train.micro_batches=2"}},
    {"tied_data", {"parallel.pipeline=4", "parallel.data=2", "model.network=gpt", "model.tied=true", "train.micro_batches=4"}},
    {"tied_tensor", {"parallel.pipeline=2", "parallel.tensor=2", "model.network=gpt", "model.tied=true"}},
    {"tied_together", {"parallel.data=2", "model.network=gpt", "model.tied=true"}},
};

/// Every strategy whose workers have trainers of their own, as the registry has them.
std::vector<ProgramCase> strategies_cases() {
  std::vector<ProgramCase> cases;
  for (const auto& row : strategies::strategies())
    if (!row.make.centralised() && row.key != "single")
      cases.push_back(
          {std::string(row.key), {"strategy.name=" + std::string(row.key), "parallel.data=4", fmt::format("strategy.period={}", kPeriod)}});
  return cases;
}

std::vector<ProgramCase> compressor_cases() {
  std::vector<ProgramCase> cases;
  for (const auto& row : compress::compressors())
    cases.push_back({std::string(row.key),
                     {"parallel.data=2", "comm.compression=" + std::string(row.key), "model.hidden=[300, 200]", "strategy.bucket_mb=0.2"}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Strategies, StepProgram, testing::ValuesIn(strategies_cases()), [](const auto& item) { return item.param.name; });
INSTANTIATE_TEST_SUITE_P(Compressors, CompressedProgram, testing::ValuesIn(compressor_cases()),
                         [](const auto& item) { return item.param.name; });
INSTANTIATE_TEST_SUITE_P(Of, StepProgram, testing::ValuesIn(kProgramCases), [](const auto& item) { return item.param.name; });

}  // namespace
}  // namespace paceline::train

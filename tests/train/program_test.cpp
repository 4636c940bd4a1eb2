// What a strategy's program says is what its step does: operations, bytes and order, on every axis of the mesh.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/engine.h"
#include "paceline/step/batch_pass.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/step_settings.h"
#include "support.h"

namespace paceline::train {
namespace {

using schedule::Action;

/// Operations of one group of ranks, in the order in which they were called.
struct GroupLog {
  std::vector<int> ranks;                // of the run
  std::vector<std::string> beside = {};  // by other threads than the step's own, or started and left to itself
};
/// Of one rank: its groups, in the order in which they were made.
struct RankLog {
  std::mutex mutex;
  std::vector<std::shared_ptr<GroupLog>> groups;
  std::vector<std::pair<std::vector<int>, std::string>> own;  // by the step's own thread: ranks of the group, operation
  std::thread::id thread = std::this_thread::get_id();
  bool on = false;
};

std::string spell(std::string_view what, std::int64_t bytes) { return fmt::format("{} {} B", what, bytes); }

class Recorder final : public comm::Decorator {
 public:
  Recorder(std::unique_ptr<comm::Communicator> inner, RankLog& log)
      : Decorator(std::move(inner)), log_(log), group_(std::make_shared<GroupLog>()) {
    for (int rank = 0; rank < size(); ++rank) group_->ranks.push_back(name_in_run(rank));
    const std::lock_guard lock(log_.mutex);
    log_.groups.push_back(group_);
  }
  comm::Work start(const comm::Operation& operation) override {
    note(operation, /*beside=*/operation.is_collective());
    return inner().start(operation);
  }
  void run(const comm::Operation& operation) override {
    note(operation, std::this_thread::get_id() != log_.thread);
    inner().run(operation);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return std::make_unique<Recorder>(inner().split(color, key), log_);
  }

 private:
  void note(const comm::Operation& operation, bool beside) {
    const std::lock_guard lock(log_.mutex);
    if (!log_.on || size() == 1) return;
    const std::string text = spell(comm::name_of(operation.kind), operation.buffer.bytes());
    if (beside) group_->beside.push_back(text);
    else log_.own.push_back({group_->ranks, text});
  }
  RankLog& log_;
  std::shared_ptr<GroupLog> group_;
};

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

/// What each rank did in its third step, by axis and kind of queue: "data exchange" and "data gather" are different groups.
std::vector<std::map<std::string, std::vector<std::string>>> recorded(const Recipe& recipe, const Datasets& data) {
  const int ranks = static_cast<int>(recipe.parallel.workers);
  auto group = comm::local_group(ranks);
  std::vector<std::map<std::string, std::vector<std::string>>> made(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankLog log;
      Recorder everyone(std::move(group[static_cast<std::size_t>(rank)]), log);
      const comm::Mesh mesh(everyone, recipe.parallel.mesh());
      const SteadyClock clock;
      observe::Bus bus;
      configure_libtorch(recipe, 1);
      StagedModel staged = make_model(recipe, {}, data.training->info(), mesh, "", clock);
      const auto model = share_out(recipe, std::move(staged.model), mesh, clock);
      const step::Context context = context_of(recipe, {}, *model, staged.stages, mesh, bus, clock);
      const auto strategy = strategies::make_strategy(strategy_of(recipe, {}, 1), context);
      const step::MicroBatch share = step::micro_batch(recipe.data.batch, mesh.data().size(), mesh.data().rank());
      const step::Batch batch = batch_of(graph_for(recipe.model, data.training->info()), share.count, recipe.data.batch);
      const auto set_recording = [&log](bool on) {
        const std::lock_guard lock(log.mutex);
        log.on = on;
      };
      for (std::int64_t step = 1; step <= 3; ++step) {
        everyone.run(comm::barrier());
        set_recording(step == 3);
        strategy->step(batch, {.step = step, .rate = 0.01});
      }
      set_recording(false);
      everyone.run(comm::barrier());  // nobody leaves while others still send to it
      const std::lock_guard lock(log.mutex);
      auto& where = made[static_cast<std::size_t>(rank)];
      const auto axis_of = [&mesh](const std::vector<int>& members) {
        const comm::MeshPlace first = mesh.place_of(members[0]), second = mesh.place_of(members[1]);
        return first.data != second.data ? "data" : first.pipeline != second.pipeline ? "pipeline" : "tensor";
      };
      for (const auto& [members, operation] : log.own) where[axis_of(members)].push_back(operation);
      // Buckets that leave beside the pass go over the mesh's own axis, parameters that are gathered over one split off from it.
      std::set<std::string> seen;
      for (const auto& each : log.groups) {
        const bool everybody = std::ssize(each->ranks) == ranks && mesh.data().size() < ranks;  // of whom an axis is a part
        if (each->ranks.size() < 2 || everybody) continue;
        const std::string axis = axis_of(each->ranks), lane = seen.insert(axis).second ? " exchange" : " gather";
        if (!each->beside.empty()) where[axis + lane] = each->beside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return made;
}

std::map<std::string, std::vector<std::string>> stated(const schedule::Program& program) {
  std::map<std::string, std::vector<std::string>> made;
  for (const Action& action : program) {
    if (action.kind != Action::Kind::communicate) continue;
    std::string axis(name_of(action.axis));
    if (action.lane == Action::Lane::gather || action.lane == Action::Lane::exchange) axis += fmt::format(" {}", name_of(action.lane));
    made[axis].push_back(
        spell(name_of(action.exchange), static_cast<std::int64_t>(static_cast<double>(action.elements) * action.element_bytes)));
  }
  return made;
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
  const auto did = recorded(recipe, data);
  const int per_stage = static_cast<int>(did.size()) / step.settings[0].pipeline;
  for (std::size_t rank = 0; rank < did.size(); ++rank) {
    const schedule::Program& program = programs[rank / static_cast<std::size_t>(per_stage)];
    EXPECT_EQ(updated(program), to_update(step, rank / static_cast<std::size_t>(per_stage)));
    if (recipe.strategy.name == "ad_psgd" && rank % 2 == 1) continue;  // it answers, beside its steps
    SCOPED_TRACE(testing::Message() << "rank " << rank << "\n" << to_text(program));
    EXPECT_EQ(stated(program), did[rank]);
  }
}

class CompressedProgram : public testing::TestWithParam<ProgramCase> {};

/// Their codes have lengths of their own in every bucket, and some depend on the gradients: all of them together are what the program says.
TEST_P(CompressedProgram, IsWhatTheStepSends) {
  const Recipe recipe = program_recipe(GetParam());
  const Datasets data = make_datasets(recipe);
  const RecipeStep step = step_of(recipe, graph_for(recipe.model, data.training->info()));
  const auto did = recorded(recipe, data).front(), says = stated(step.programs(step.settings.at(0)).at(0));
  const auto sum = [](const std::map<std::string, std::vector<std::string>>& all, std::string& kinds) {
    double bytes = 0;
    for (const auto& [axis, operations] : all)
      for (const std::string& operation : operations) {
        const auto space = operation.find(' ');
        kinds += axis + ": " + operation.substr(0, space) + "\n";
        bytes += std::stod(operation.substr(space));
      }
    return bytes;
  };
  std::string kinds_said, kinds_done;
  const double bytes_said = sum(says, kinds_said), bytes_done = sum(did, kinds_done);
  EXPECT_EQ(kinds_said, kinds_done);
  if (GetParam().name == "threshold") EXPECT_LE(bytes_done, bytes_said);  // as many as exceed it
  else EXPECT_NEAR(bytes_said / bytes_done, 1, 0.05);
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
    {"fp32_gradients", {"parallel.data=2", "train.storage=bf16", "train.gradients=fp32", "strategy.bucket_mb=0.01", "parallel.zero=1"}},
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
      cases.push_back({std::string(row.key), {"strategy.name=" + std::string(row.key), "parallel.data=4", "strategy.period=3"}});
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

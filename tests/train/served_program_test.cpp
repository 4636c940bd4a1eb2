// What the program of a parameter server's worker says is what the worker asks of its client: operations, bytes and order, in every step of
// a period, for every strategy with a server.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "paceline/central/central_worker.h"
#include "paceline/central/server_plan.h"
#include "paceline/comm/engine.h"
#include "paceline/ps/client.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/step_settings.h"
#include "support.h"

namespace paceline::train {
namespace {

using schedule::Action;

/// Passes each request on, and writes down how many bytes travel for it.
class RecordingClient final : public ps::Client {
 public:
  /// `answers`: a push brings the worker's next parameters back.
  RecordingClient(std::unique_ptr<ps::Client> inner, std::int64_t length, bool answers, std::vector<std::string>& log)
      : inner_(std::move(inner)), bytes_(length * 4), answers_(answers), log_(log) {}

  void pull(float* into, float rate) override {
    if (into) log_.push_back(fmt::format("pull {} B", bytes_));
    inner_->pull(into, rate);
  }
  ps::Advice report(const ps::Report& report, const float* statistics) override {
    log_.emplace_back("report");
    return inner_->report(report, statistics);
  }
  ps::Admission push(float* gradient, const ps::Push& push) override {
    log_.push_back(fmt::format("push {} B", bytes_));
    if (answers_) log_.push_back(fmt::format("pull {} B", bytes_));
    return inner_->push(gradient, push);
  }
  bool cancelled() override { return inner_->cancelled(); }

 private:
  std::unique_ptr<ps::Client> inner_;
  std::int64_t bytes_;
  bool answers_;
  std::vector<std::string>& log_;
};

struct ServedCase {
  std::string name;
  std::vector<std::string> settings;
};

Recipe served_recipe(const ServedCase& one) {
  Recipe recipe = tiny_recipe();
  recipe.optim.momentum = 0, recipe.ps.executor = "threads";
  Config config = recipe.config();
  for (const std::string& setting : one.settings) config.set(setting);
  recipe.parallel.workers = 1;
  validate(recipe);
  return recipe;
}

/// What one worker asks for in each of its first steps.
std::vector<std::vector<std::string>> requests_of(const Recipe& recipe, std::int64_t steps) {
  const data::Info info = make_datasets(recipe).training->info();
  const auto alone = std::move(comm::local_group(1).front());
  const comm::Mesh mesh(*alone);
  const SteadyClock clock;
  observe::Bus bus;
  configure_libtorch(recipe, 1);
  const StagedModel staged = make_model(recipe, {}, info, mesh, "", clock);
  const step::Context context = context_of(recipe, {}, *staged.model, staged.stages, mesh, bus, clock);
  const central::Settings settings = *recipe.servers();
  const central::ServerPlan plan(context, settings, recipe.ps.servers);
  std::vector<std::shared_ptr<ps::ConcurrentServer>> servers;
  for (std::size_t i = 0; i < plan.servers(); ++i) servers.push_back(plan.make_server(i));
  const bool answers = ps::make_rule({settings.ps, recipe.optim, 1})->needs().replica;
  std::vector<std::string> log;
  central::CentralWorker worker(
      context, settings,
      std::make_unique<RecordingClient>(ps::make_in_process_client(servers, plan.cuts(), 0), staged.model->arena().length(), answers, log),
      0);
  std::vector<std::int64_t> shape = {recipe.data.batch};
  shape.insert(shape.end(), info.input.begin(), info.input.end());
  std::vector<std::vector<std::string>> made;
  for (std::int64_t step = 1; step <= steps; ++step) {
    worker.minibatch({at::ones(shape), at::zeros({recipe.data.batch}, at::kLong), recipe.data.batch}, {.step = step, .rate = 0.01});
    made.push_back(std::exchange(log, {}));
  }
  return made;
}

/// What a program exchanges; a report carries a loss and the statistics of norms, which is nothing beside the parameters.
std::vector<std::string> requests_in(const schedule::Program& program) {
  std::vector<std::string> made;
  bool computed = false;
  for (const Action& action : program) {
    computed = computed || action.work == Action::Work::forward;
    if (action.kind != Action::Kind::communicate) continue;
    if (action.exchange == Action::Exchange::push) {
      EXPECT_TRUE(computed) << "gradients come from a pass";
      made.emplace_back("report");
    }
    EXPECT_EQ(action.exchange == Action::Exchange::pull, !computed);
    made.push_back(fmt::format("{} {} B", name_of(action.exchange),
                               static_cast<std::int64_t>(static_cast<double>(action.elements) * action.element_bytes)));
  }
  return made;
}

std::int64_t updates_in(const schedule::Program& program) {
  std::int64_t sum = 0;
  for (const Action& action : program) sum += action.work == Action::Work::update ? action.elements : 0;
  return sum;
}

class ServedProgram : public testing::TestWithParam<ServedCase> {};

TEST_P(ServedProgram, IsWhatTheWorkerAsksFor) {
  const Recipe recipe = served_recipe(GetParam());
  const RecipeStep step = step_of(recipe, graph_for(recipe.model, make_datasets(recipe).training->info()));
  const schedule::ProgramSettings& settings = step.settings.at(0);
  const auto period = static_cast<std::size_t>(step.period);
  ASSERT_EQ(period, GetParam().settings.back() == "ps.period=3" ? 3U : 1U);
  const auto did = requests_of(recipe, 2 * step.period);
  std::vector<schedule::Program> programs = step.programs(settings);
  if (period > 1) {
    programs = {step.opening(settings).at(0), step.programs_between(settings).at(0), step.closing(settings).at(0)};
    const std::vector<std::string> whole = requests_in(step.programs(settings).at(0));
    std::vector<std::string> parts;
    for (const schedule::Program& program : programs) std::ranges::copy(requests_in(program), std::back_inserter(parts));
    EXPECT_EQ(parts, whole) << "the step that is costed has what a period has";
  }
  const central::Settings servers = *recipe.servers();
  const auto rule = ps::make_rule({servers.ps, recipe.optim, 1});
  const bool departs = rule->needs().replica || servers.ps.pushes_steps() || period > 1;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "step " << i + 1 << " of a period\n" << to_text(programs[i]));
    check(programs[i], step.model);
    EXPECT_EQ(updates_in(programs[i]) > 0, departs);
    // A replica's first pull is its only one; later its push is answered with what it goes on with.
    if (!rule->needs().replica) {
      EXPECT_EQ(requests_in(programs[i]), did[period + i]);
    } else if (i == 0 && period > 1) {
      EXPECT_EQ(requests_in(programs[i]), did[0]) << "and then never again";
    }
  }
  if (!rule->needs().replica) return;
  std::vector<std::string> says = requests_in(step.programs(settings).at(0)), asks;
  for (std::size_t i = 0; i < period; ++i) std::ranges::copy(did[period + i], std::back_inserter(asks));
  EXPECT_TRUE(std::ranges::is_permutation(says, asks)) << testing::PrintToString(asks);
}

std::vector<ServedCase> served_cases() {
  std::vector<ServedCase> cases;
  for (const auto& row : strategies::strategies())
    if (row.make.centralised()) cases.push_back({std::string(row.key), {"strategy.name=" + std::string(row.key)}});
  const std::string any = "strategy.name=ps";
  cases.push_back({"two_servers", {"strategy.name=asgd", "ps.servers=2"}});
  cases.push_back({"own_optimizers", {any, "ps.rule=asgd", "ps.optimizer=worker"}});
  cases.push_back({"easgd", {any, "ps.rule=easgd"}});
  cases.push_back({"downpour_every_third", {"strategy.name=downpour", "ps.period=3"}});
  cases.push_back({"easgd_every_third", {any, "ps.rule=easgd", "ps.period=3"}});
  for (const char* rule : {"async_nesterov", "delayed_nesterov", "adam_decay", "cgad", "heloco", "look_ahead"})
    cases.push_back({rule, {any, fmt::format("ps.rule={}", rule), "ps.optimizer=worker", "ps.period=3"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Of, ServedProgram, testing::ValuesIn(served_cases()), [](const auto& item) { return item.param.name; });

}  // namespace
}  // namespace paceline::train

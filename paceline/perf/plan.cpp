#include "paceline/perf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_fit.h"
#include "paceline/perf/plan_space.h"

namespace paceline::perf {
namespace {

void check(const PlanQuestion& question) {
  if (question.workers > question.cluster.processes())
    throw ConfigError(fmt::format("{}, but cluster '{}' has {} ({} of {}); use at most {}, or another cluster",
                                  counted(question.workers, "worker"), question.cluster.name,
                                  counted(question.cluster.processes(), "device"), counted(question.cluster.hosts, "host"),
                                  question.cluster.devices, question.cluster.processes()));
  ensure(question.strategies.alone.programs != nullptr && question.strategies.together.programs != nullptr,
         "the strategies state their programs");
}

constexpr double kWorthShowing = 2;    // times the best: slower plans are not looked for
constexpr double kWorthTrying = 2e-3;  // of a step: where buckets cost less that others could save, no others are tried
constexpr double kSurely = 1.02;       // times what is needed: an estimate above that is not played
constexpr double kHardly = 1.0001;     // times the estimate of other buckets, likewise
constexpr std::size_t kImproved = 2;   // times the rows of the table: this many of the best plans are tried with other buckets

/// Choices of one group have the same mesh and stage of ZeRO's; a table shows the best of each group.
using Group = std::tuple<int, int, int, int, std::string>;
Group group_of(const Choice& choice) {
  const schedule::ProgramSettings& program = choice.program;
  return {program.data, program.pipeline, program.tensor, program.zero, choice.hybrid};
}
/// Choices that differ in recomputation alone.
using Family = std::tuple<Group, std::int64_t, std::string, bool>;
Family family_of(const Choice& choice) {
  return {group_of(choice), choice.program.micro_batches, choice.program.schedule, choice.sequence};
}

/// A choice that waits for its turn, with what is known of it.
struct Candidate {
  Choice choice;
  std::unique_ptr<Plan> fitted = nullptr;  // once its stages are cut
  bool estimated = false;
};

/// Best first by a lower bound of the seconds, until nothing that is left can be among the best groups. What comes to the front is looked
/// at more closely and waits again with a better bound: its stages are cut, its cost is estimated, and in the end its step is played.
class Search {
 public:
  Search(const PlanQuestion& question, const PlanCosts& costs) : question_(question), costs_(costs) {}

  Plans run() {
    add_candidates();
    while (!waiting_.empty() && waiting_.begin()->first <= cutoff_) {
      auto front = waiting_.extract(waiting_.begin());
      if (look_closer(front.mapped(), front.key())) waiting_.insert(std::move(front));
    }
    for (auto& [group, plan] : best_) plans_.exact.push_back(std::move(plan));
    sort_and_cut(plans_.exact, kImproved * question_.rows);
    improve_all();
    sort_and_cut(plans_.exact, question_.rows);
    for (Plan& plan : plans_.exact) costs_.add_gains(plan);
    return std::move(plans_);
  }

 private:
  void add_candidates() {
    for (const Choice& mesh : meshes(question_))
      for (Choice& choice : choices_on(question_, mesh)) {
        ++plans_.considered;
        for (const char* recompute : kRecompute) {
          choice.program.recompute = recompute;
          waiting_.emplace(costs_.bound(choice), Candidate{choice});
        }
      }
  }

  void set_cutoff() {
    std::vector<double> seconds;
    for (const auto& [group, plan] : best_) seconds.push_back(plan.step_s());
    std::ranges::sort(seconds);
    cutoff_ = kWorthShowing * seconds.front();
    if (seconds.size() >= question_.rows) cutoff_ = std::min(cutoff_, seconds[question_.rows - 1]);
  }

  /// Whether it waits again, with more seconds at least.
  bool look_closer(Candidate& candidate, double& seconds) {
    const auto known = best_.find(group_of(candidate.choice));
    if (known != best_.end() && seconds >= known->second.step_s()) return false;
    if (!candidate.fitted) return fit(candidate) && raise(seconds, costs_.bound(*candidate.fitted));
    try {
      if (!std::exchange(candidate.estimated, true)) return raise(seconds, costs_.estimate(*candidate.fitted).value_or(0) / kSurely);
      costs_.add_seconds(*candidate.fitted);
    } catch (const ConfigError&) {  // the strategy cannot do it
      return false;
    }
    ++plans_.costed;
    if (known == best_.end()) best_.emplace(group_of(candidate.choice), std::move(*candidate.fitted));
    else if (candidate.fitted->step_s() < known->second.step_s()) known->second = std::move(*candidate.fitted);
    set_cutoff();
    return false;
  }

  bool fit(Candidate& candidate) {
    // Once something fits, recomputing more of it is slower. The bounds have less recomputation first.
    const Family family = family_of(candidate.choice);
    if (fitting_.contains(family)) return false;
    std::optional<Plan> plan = costs_.fitted(candidate.choice);
    if (!plan) {
      ++plans_.too_large;
      return false;
    }
    fitting_.insert(family);
    candidate.fitted = std::make_unique<Plan>(std::move(*plan));
    return true;
  }

  static bool raise(double& seconds, double least) {
    seconds = std::max(seconds, least);
    return true;
  }

  /// Those behind the last row of the table only where they might come into it.
  void improve_all() {
    double last = 0;  // seconds of the slowest row so far
    for (std::size_t i = 0; i < plans_.exact.size(); ++i) {
      Plan& plan = plans_.exact[i];
      const auto comes_into_it = [&](double saved) { return i < question_.rows || plan.step_s() - saved <= last; };
      if (!comes_into_it(most_sent(plan.cost))) continue;
      costs_.add_cost(plan);
      if (comes_into_it(most_exposed(plan.cost))) improve(plan);
      if (i < question_.rows) last = std::max(last, plan.step_s());
    }
  }
  /// What other buckets could save at most; and more than that, which is known before.
  static double most_sent(const StepCost& cost) {
    double most = 0;
    for (const StageCost& stage : cost.stages) most = std::max(most, stage.communication[schedule::Action::Axis::data]);
    return most;
  }
  static double most_exposed(const StepCost& cost) {
    double most = 0;
    for (const StageCost& stage : cost.stages) most = std::max(most, stage.split.exposed[schedule::Action::Axis::data]);
    return most;
  }

  void improve(Plan& plan) {
    if (plan.cost.split.exposed[schedule::Action::Axis::data] < kWorthTrying * plan.cost.seconds) return;
    std::optional<double> about = costs_.estimate(plan);
    for (const Choice& other : with_buckets(plan.choice)) {
      std::optional<Plan> better = costs_.fitted(other);
      if (!better || (about && costs_.estimate(*better).value_or(0) > kHardly * *about)) continue;
      costs_.add_seconds(*better);
      ++plans_.costed;
      if (better->step_s() >= plan.step_s()) continue;
      costs_.add_cost(*better);
      plan = std::move(*better);
      if (about) about = costs_.estimate(plan);
    }
  }

  static void sort_and_cut(std::vector<Plan>& plans, std::size_t rows) {
    std::ranges::stable_sort(plans, {}, &Plan::step_s);
    if (plans.size() > rows) plans.resize(rows);
  }

  const PlanQuestion& question_;
  const PlanCosts& costs_;
  Plans plans_;
  std::multimap<double, Candidate> waiting_;  // by the seconds that it takes at least
  std::map<Group, Plan> best_;
  std::set<Family> fitting_;
  double cutoff_ = std::numeric_limits<double>::infinity();
};

/// One replica of the whole network for each worker.
std::optional<Choice> data_alone(const PlanQuestion& question) {
  if (question.workers < 2 || question.batch % question.workers != 0) return std::nullopt;
  for (const Choice& mesh : meshes(question))
    if (mesh.program.data == question.workers) return mesh;
  return std::nullopt;
}

std::vector<Plan> other_plans(const PlanQuestion& question, const PlanCosts& costs, std::vector<std::string>& notes) {
  std::vector<Plan> made;
  const std::optional<Choice> alone = data_alone(question);
  if (!alone) return made;
  bool fits = true;
  const auto add = [&](const Choice& choice, const std::string& remark) {
    std::optional<Plan> plan = costs.fitted(choice);
    fits = fits && plan;
    if (plan) try {
        costs.add_cost(*plan);
        plan->remark = remark;
        made.push_back(std::move(*plan));
      } catch (const ConfigError&) {  // the strategy cannot do it
      }
  };
  for (const OtherWire& wire : question.strategies.wires) {
    if (question.gradient() != 4) break;  // compressors take fp32
    Choice choice = *alone;
    choice.compression = wire.compression;
    choice.program.wire_bytes = wire.bytes, choice.program.compressed = wire.traffic;
    choice.program.compressed_rounds = wire.rounds;
    add(choice, fmt::format("{}{:.3g} bytes per gradient", wire.at_most ? "at most " : "", wire.bytes));
  }
  for (const PlanStrategy& strategy : question.strategies.others) {
    Choice choice = *alone;
    choice.strategy = strategy.key, choice.together = false, choice.program.overlap = false;
    add(choice, strategy.remark);
  }
  if (!fits) notes.emplace_back("some lossy or asynchronous plans do not fit: each worker has the whole network there");
  for (Plan& plan : made)
    if (plan.cost.staleness > 0) plan.remark += fmt::format("; staleness {:.{}f}", plan.cost.staleness, plan.cost.staleness < 10 ? 1 : 0);
  std::ranges::stable_sort(made, std::greater{}, &Plan::samples_per_s);
  return made;
}

}  // namespace

Plans make_plans(const PlanQuestion& question) {
  check(question);
  const PlanCosts costs(question);
  Plans plans = Search(question, costs).run();
  if (plans.considered == 0) throw ConfigError(no_mesh_message(question));
  if (plans.exact.empty()) throw ConfigError(no_fit_message(question));
  plans.others = other_plans(question, costs, plans.notes);
  for (const std::string& note : plans.exact.front().cost.notes) plans.notes.push_back(note);
  return plans;
}

Plan cost_choice(const PlanQuestion& question, const Choice& choice) {
  check(question);
  const PlanCosts costs(question);
  std::optional<Plan> plan = costs.fitted(choice);
  if (!plan) throw ConfigError(fmt::format("{} does not fit into {}", title_of(choice), memory::readable(memory_limit(question))));
  costs.add_cost(*plan), costs.add_gains(*plan);
  return *plan;
}

std::vector<schedule::Program> programs_of(const PlanQuestion& question, const Choice& choice) {
  return PlanCosts(question).programs(choice);
}

}  // namespace paceline::perf

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

constexpr double kWorthShowing = 2;    // times the seconds of the best plan: slower ones are not searched for
constexpr double kWorthTrying = 2e-3;  // share of a step: if sending gradients takes less, no other buckets are tried
constexpr double kSurely = 1.02;       // times the seconds that a plan must reach: one whose estimate is above is not played
constexpr std::size_t kImproved = 2;   // times the rows of the table: so many of the best plans are tried with other buckets

/// Choices with the same mesh and ZeRO stage form a group; a table shows the best of each group.
using Group = std::tuple<int, int, int, int, std::string>;
Group group_of(const Choice& choice) {
  const schedule::ProgramSettings& program = choice.program;
  return {program.data, program.pipeline, program.tensor, program.zero, choice.hybrid};
}
/// Choices that differ only in recomputation.
using Family = std::tuple<Group, std::int64_t, std::string, bool>;
Family family_of(const Choice& choice) {
  return {group_of(choice), choice.program.micro_batches, choice.program.schedule, choice.sequence};
}

/// A choice that waits for its turn, with what is known about it.
struct Candidate {
  Choice choice;
  std::unique_ptr<Plan> fitted = nullptr;  // set once its stages are cut
  bool estimated = false;
};

/// Best-first search by a lower bound of the seconds, until no remaining choice can be among the best groups. The first choice of the queue
/// is examined more closely and queued again with a better bound: its stages are cut, its cost is estimated, and finally its step is
/// played.
class Search {
 public:
  /// `rows`: the number of best groups to find.
  Search(const PlanCosts& costs, std::size_t rows, Plans& counts) : costs_(costs), rows_(rows), counts_(counts) {}

  void add(Choice choice) {
    ++counts_.considered;
    for (const char* recompute : kRecompute) {
      choice.program.recompute = recompute;
      waiting_.emplace(costs_.bound(choice), Candidate{choice});
    }
  }

  /// The plans with their seconds, not yet with a breakdown of these.
  std::vector<Plan> run() {
    while (!waiting_.empty() && waiting_.begin()->first <= cutoff_) {
      auto front = waiting_.extract(waiting_.begin());
      if (look_closer(front.mapped(), front.key())) waiting_.insert(std::move(front));
    }
    for (auto& [group, plan] : best_) found_.push_back(std::move(plan));
    sort_and_cut(kImproved * rows_);
    improve_all();
    sort_and_cut(rows_);
    return std::move(found_);
  }

 private:
  void set_cutoff() {
    std::vector<double> seconds;
    for (const auto& [group, plan] : best_) seconds.push_back(plan.step_s());
    std::ranges::sort(seconds);
    cutoff_ = kWorthShowing * seconds.front();
    if (seconds.size() >= rows_) cutoff_ = std::min(cutoff_, seconds[rows_ - 1]);
  }

  /// Whether it is queued again, with a higher bound.
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
    ++counts_.costed;
    if (known == best_.end()) best_.emplace(group_of(candidate.choice), std::move(*candidate.fitted));
    else if (candidate.fitted->step_s() < known->second.step_s()) known->second = std::move(*candidate.fitted);
    set_cutoff();
    return false;
  }

  bool fit(Candidate& candidate) {
    // Once a choice fits, more recomputation only makes it slower. Choices with less recomputation have lower bounds, so they come first.
    const Family family = family_of(candidate.choice);
    if (fitting_.contains(family)) return false;
    std::optional<Plan> plan = costs_.fitted(candidate.choice);
    if (!plan) {
      ++counts_.too_large;
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

  /// Plans behind the last row of the table are only considered if they might enter it.
  void improve_all() {
    double last = 0;  // seconds of the slowest row so far
    for (std::size_t i = 0; i < found_.size(); ++i) {
      Plan& plan = found_[i];
      const double saved = most_sent(plan.cost);  // the most that other buckets can save
      if (saved >= kWorthTrying * plan.cost.seconds && (i < rows_ || plan.step_s() - saved <= last)) improve(plan);
      if (i < rows_) last = std::max(last, plan.step_s());
    }
  }
  static double most_sent(const StepCost& cost) {
    double most = 0;
    for (const StageCost& stage : cost.stages) most = std::max(most, stage.communication[schedule::Action::Axis::data]);
    return most;
  }

  /// Buckets only affect what happens once per step, so short steps show which are best.
  void improve(Plan& plan) {
    double least = costs_.short_seconds(plan);
    std::optional<Plan> best;
    for (const Choice& other : with_buckets(plan.choice)) {
      std::optional<Plan> fitted = costs_.fitted(other);
      const double seconds = fitted ? costs_.short_seconds(*fitted) : least;
      if (seconds < least) best = std::move(fitted), least = seconds;
    }
    if (!best) return;
    costs_.add_seconds(*best);
    ++counts_.costed;
    if (best->step_s() < plan.step_s()) plan = std::move(*best);
  }

  void sort_and_cut(std::size_t rows) {
    std::ranges::stable_sort(found_, {}, &Plan::step_s);
    if (found_.size() > rows) found_.resize(rows);
  }

  const PlanCosts& costs_;
  std::size_t rows_;
  Plans& counts_;
  std::vector<Plan> found_{};
  std::multimap<double, Candidate> waiting_{};  // by the lower bound of the seconds
  std::map<Group, Plan> best_{};
  std::set<Family> fitting_{};
  double cutoff_ = std::numeric_limits<double>::infinity();
};

/// The fastest plan on any mesh for each other way to send gradients.
std::vector<Plan> lossy_plans(const PlanQuestion& question, const PlanCosts& costs, const std::vector<Choice>& choices, Plans& counts) {
  std::vector<Plan> made;
  if (question.gradient() != 4) return made;  // compressors only take fp32
  for (const OtherWire& wire : question.strategies.wires) {
    Search search(costs, /*rows=*/1, counts);
    for (const Choice& choice : choices)
      if (std::optional<Choice> other = with_wire(choice, wire)) search.add(std::move(*other));
    for (Plan& plan : search.run()) {
      costs.add_cost(plan);
      plan.remark = fmt::format("{}{:.3g} bytes per gradient", wire.at_most ? "at most " : "", wire.bytes);
      made.push_back(std::move(plan));
    }
  }
  return made;
}

/// One replica of the whole network for each worker.
std::vector<Plan> replica_plans(const PlanQuestion& question, const PlanCosts& costs, const std::vector<Choice>& meshes, Plans& counts) {
  std::vector<Plan> made;
  const auto alone = std::ranges::find_if(meshes, [&](const Choice& mesh) { return mesh.program.data == question.workers; });
  if (question.workers < 2 || alone == meshes.end()) return made;
  bool fits = true;
  for (const PlanStrategy& strategy : question.strategies.others) {
    Choice choice = *alone;
    choice.strategy = strategy.key, choice.together = false, choice.program.overlap = false;
    std::optional<Plan> plan = costs.fitted(choice);
    fits = fits && plan;
    if (plan) try {
        costs.add_cost(*plan);
        plan->remark = strategy.remark;
        made.push_back(std::move(*plan));
      } catch (const ConfigError&) {  // the strategy cannot do it
      }
  }
  if (!fits) counts.notes.emplace_back("some asynchronous plans do not fit: each worker has the whole network there");
  for (Plan& plan : made)
    if (plan.cost.staleness > 0) plan.remark += fmt::format("; staleness {:.{}f}", plan.cost.staleness, plan.cost.staleness < 10 ? 1 : 0);
  return made;
}

}  // namespace

Plans make_plans(const PlanQuestion& question) {
  check(question);
  const PlanCosts costs(question);
  const std::vector<Choice> all = meshes(question);
  std::vector<Choice> choices;
  for (const Choice& mesh : all) std::ranges::move(choices_on(question, mesh), std::back_inserter(choices));
  if (choices.empty()) throw ConfigError(no_mesh_message(question));
  Plans plans;
  Search search(costs, question.rows, plans);
  for (const Choice& choice : choices) search.add(choice);
  plans.exact = search.run();
  if (plans.exact.empty()) throw ConfigError(no_fit_message(question));
  for (Plan& plan : plans.exact) costs.add_cost(plan), costs.add_gains(plan);
  plans.others = lossy_plans(question, costs, choices, plans);
  std::ranges::move(replica_plans(question, costs, all, plans), std::back_inserter(plans.others));
  std::ranges::stable_sort(plans.others, std::greater{}, &Plan::samples_per_s);
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

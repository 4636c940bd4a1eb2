#include "verify_table.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "paceline/base/files.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/perf/calibrate.h"
#include "paceline/strategies/registry.h"
#include "plan_report.h"

namespace paceline::cli {
namespace {

using Table = nlohmann::ordered_json;

std::string share_text(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string errors_text(const char* what, const perf::PredictionErrors& errors) {
  return fmt::format("  {:<28}{:>6} rows  mean {:>7}  90th percentile {:>7}  worst {:>7} (line {})  bias {:+.2f}%\n", what, errors.rows,
                     share_text(errors.mean), share_text(errors.percentile90), share_text(errors.worst), errors.worst_line,
                     100 * errors.bias);
}

std::string table_text(const TableFlags& flags, const perf::TableVerification& found) {
  std::string text = fmt::format("{}: {} measured steps, {} of them fit {} numbers of the model\n\n", flags.table,
                                 found.fitted.rows + found.others.rows, found.fitted.rows, found.calibration.values.size());
  text += errors_text("error on fitted rows", found.fitted) + errors_text("error on other rows", found.others);
  text += fmt::format("  regret of the chosen plan, {} questions: mean {}, worst {}; where the best three are measured: {}\n\n",
                      found.regret.questions, share_text(found.regret.mean), share_text(found.regret.worst),
                      share_text(found.regret.top3_mean));
  for (const perf::CalibratedValue& value : found.calibration.values)
    text += fmt::format("    {:<34}{:>10.4g} {}\n", value.name, value.value, value.unit);
  text += "\n  the others, by what they have in common:\n";
  for (const perf::GroupError& group : found.groups)
    text += fmt::format("    {:<14}{:>5}{:>7} rows  mean {:>7}  bias {:+7.2f}%\n", group.column, group.value, group.errors.rows,
                        share_text(group.errors.mean), 100 * group.errors.bias);
  return text;
}

Table errors_json(const perf::PredictionErrors& errors) {
  return {{"rows", errors.rows},   {"mean", errors.mean}, {"percentile_90", errors.percentile90},
          {"worst", errors.worst}, {"bias", errors.bias}, {"worst_line", errors.worst_line}};
}

Table table_json(const TableFlags& flags, const perf::TableVerification& found) {
  Table document = {{"table", flags.table}, {"fraction", flags.calibrate}, {"seed", flags.seed}};
  document["seen"] = errors_json(found.fitted), document["others"] = errors_json(found.others);
  document["regret"] = {{"questions", found.regret.questions},
                        {"mean", found.regret.mean},
                        {"worst", found.regret.worst},
                        {"top_3_mean", found.regret.top3_mean}};
  for (const perf::CalibratedValue& value : found.calibration.values)
    document["values"].push_back({{"name", value.name}, {"value", value.value}, {"unit", value.unit}});
  for (const perf::GroupError& group : found.groups) {
    Table row = {{"column", group.column}, {"value", group.value}};
    row.update(errors_json(group.errors));
    document["groups"].push_back(std::move(row));
  }
  return document;
}

std::string rows_csv(const std::vector<perf::MeasuredStep>& steps, const perf::TableVerification& found) {
  std::string text = "line,seen,measured_ms,predicted_ms,error\n";
  for (std::size_t i = 0; i < steps.size(); ++i)
    text += fmt::format("{},{},{:.6g},{:.6g},{:.4f}\n", steps[i].line, found.seen[i] ? 1 : 0, steps[i].seconds * 1e3,
                        found.predicted[i] * 1e3, found.predicted[i] / steps[i].seconds - 1);
  return text;
}

}  // namespace

CLI::Option* add_table_flags(CLI::App& app, TableFlags& flags) {
  CLI::Option* table =
      app.add_option("--table", flags.table, "verify the planner's model on a CSV file of measured transformer steps, such as vTrain's")
          ->type_name(kFile);
  const auto add = [&](const std::string& name, auto& target, const std::string& help) {
    return app.add_option(name, target, help)->needs(table);
  };
  add("--calibrate", flags.calibrate, "share of its rows, drawn at random, to which the model is fitted")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  add("--seed", flags.seed, "seed of that draw")->check(whole_number(0))->capture_default_str();
  add("--cluster", flags.cluster, "cluster, or cluster file, from which the fit starts")->type_name(kNameOrFile)->capture_default_str();
  add("--write-cluster", flags.write_cluster, "write the fitted cluster, for `paceline plan --cluster`")->type_name(kFile);
  add("--write-rows", flags.out, "write every row's measured and predicted step as CSV")->type_name(kFile);
  return table;
}

int run_verify_table(const TableFlags& flags, bool json) {
  perf::TableQuestion question;
  question.steps = perf::read_step_table(read_file(flags.table), flags.table);
  question.fraction = flags.calibrate, question.seed = static_cast<std::uint64_t>(flags.seed);
  question.cluster = perf::find_cluster(flags.cluster);
  question.allreduce = find(strategies::strategies(), "strategy", strategies::kAllreduce).make.program;
  const perf::TableVerification found = observe::patiently("predicting the table's steps", [&] { return perf::verify_table(question); });
  if (!flags.write_cluster.empty()) write_atomically(flags.write_cluster, perf::to_toml(found.calibration.cluster));
  if (!flags.out.empty()) write_atomically(flags.out, rows_csv(question.steps, found));
  if (json) print_json(table_json(flags, found));
  else std::cout << table_text(flags, found);
  return kDone;
}

}  // namespace paceline::cli

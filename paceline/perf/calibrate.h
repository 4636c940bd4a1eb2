// Fits a cluster to measured steps of transformers (step_table.h), so that the planner's own model predicts them: the strategies' step
// programs, costed by CostModel with the roofline of a device whose speeds are fitted. Only a few numbers are fitted, each of which a
// cluster file has or could have. Some of the rows are used for the fit; the others show how good it is.
#pragma once

#include <optional>

#include "paceline/perf/cluster.h"
#include "paceline/perf/plan.h"
#include "paceline/perf/step_table.h"

namespace paceline::perf {

/// One number of the model.
struct CalibratedValue {
  std::string name;  // "half of the peak from"
  double value = 0;
  std::string unit;
};

/// Work of a framework that the network's description does not contain.
struct Overheads {
  double step_s = 0;      // of every step
  double vocabulary = 1;  // the time of the logits' products relative to other products of their size
};

struct Calibration {
  Cluster cluster;  // with fitted device and links
  Overheads overheads;
  int rounds = 0;  // of the fit
  std::vector<CalibratedValue> values;
};

/// Errors of predictions, relative to the measured times.
struct PredictionErrors {
  std::size_t rows = 0;
  double mean = 0, percentile90 = 0, worst = 0;  // without signs
  double bias = 0;                               // signed mean; above 0: predictions are too long
  std::int64_t worst_line = 0;
};
/// Rows with the same value of one column.
struct GroupError {
  std::string column;
  std::int64_t value = 0;
  PredictionErrors errors;
};
/// The loss from choosing the plan with the shortest predicted time, over the networks, batches and numbers of GPUs for which several plans
/// were measured.
struct Regret {
  std::size_t questions = 0;
  double mean = 0, worst = 0;  // share of the measured time, relative to the best measured plan
  double top3_mean = 0;        // if the three best predictions are measured, as with `--probe-top 3`
};

struct TableVerification {
  Calibration calibration;
  PredictionErrors fitted, others;  // of rows that were used for the fit, and of the others
  std::vector<GroupError> groups;   // of the others
  Regret regret;                    // over all rows
  std::vector<double> predicted;    // by row of the table, seconds
  std::vector<bool> seen;           // by row
};

struct TableQuestion {
  std::vector<MeasuredStep> steps;
  double fraction = 0.1;  // share of the rows, drawn at random, that is used for the fit
  std::uint64_t seed = 1;
  Cluster cluster;  // starting point of the fit
  Programs allreduce = nullptr;
};

/// ConfigError if the fraction leaves too few rows to fit all numbers, or none to check them with.
TableVerification verify_table(const TableQuestion& question);

}  // namespace paceline::perf

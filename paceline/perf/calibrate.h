// Fits a cluster to measured steps of transformers (step_table.h), so that the planner's own model predicts them: the step programs that
// the strategies state, costed by CostModel with the roofline of a device whose speeds are fitted. A few numbers are fitted, each of which
// a cluster file has or could have; a part of the rows decides them, and the others say how good they are.
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

/// What a framework adds to the work of a device, whatever the network's description says.
struct Overheads {
  double step_s = 0;      // of every step
  double vocabulary = 1;  // how many times longer the logits' products take than others of their size
};

struct Calibration {
  Cluster cluster;  // its device and links are fitted
  Overheads overheads;
  int rounds = 0;  // of the fit
  std::vector<CalibratedValue> values;
};

/// How predictions differ from what was measured, as shares of that.
struct PredictionErrors {
  std::size_t rows = 0;
  double mean = 0, percentile90 = 0, worst = 0;  // without signs
  double bias = 0;                               // mean with signs: above 0, predictions are too long
  std::int64_t worst_line = 0;
};
/// Rows with the same value of one column.
struct GroupError {
  std::string column;
  std::int64_t value = 0;
  PredictionErrors errors;
};
/// What is lost where the plan with the shortest predicted time is taken, over the networks, batches and numbers of GPUs for which several
/// plans were measured.
struct Regret {
  std::size_t questions = 0;
  double mean = 0, worst = 0;  // of the measured time, against the best measured plan
  double top3_mean = 0;        // where the best three are measured, as `--probe-top 3` does
};

struct TableVerification {
  Calibration calibration;
  PredictionErrors fitted, others;  // rows that the fit saw, and those that it did not
  std::vector<GroupError> groups;   // of the others
  Regret regret;                    // over all rows
  std::vector<double> predicted;    // by row of the table, seconds
  std::vector<bool> seen;           // by row
};

struct TableQuestion {
  std::vector<MeasuredStep> steps;
  double fraction = 0.1;  // of the rows, drawn at random, decide the fit
  std::uint64_t seed = 1;
  Cluster cluster;  // where the fit starts
  Programs allreduce = nullptr;
};

/// ConfigError if the fraction leaves fewer rows than there are numbers to fit, or none to verify.
TableVerification verify_table(const TableQuestion& question);

}  // namespace paceline::perf

// The errors of lc_asgd's predictors, and those that simpler ones would have made on the same run (predictions.csv).
//
//   lstm        what the run predicted
//   last        the value before; of k losses, k times the newest
//   ema         the exponential mean of the values before, with weight 0.1 for the newest
//   constant    the mean of all values before
//   shuffled    lstm's predictions in random order: what is left of them without their times
//   oracle      the mean of the 16 values before and the 16 after, which needs the future: its error is noise
//
// Steps are counted worker by worker. The first tenth of a run, in which all of them learn, does not count.
#pragma once

#include "paceline/train/outcome.h"

namespace paceline::train {

/// Root mean squared errors; NaN if there was nothing to predict.
struct PredictorScore {
  std::string predictor;
  double loss = NAN;  // of the next report
  double sum = NAN;   // of the losses of the k next reports, k being the steps that the run predicted
  double steps = NAN;
};

/// Empty if the run had no predictors.
std::vector<PredictorScore> score_predictors(const Outcome& outcome);

}  // namespace paceline::train

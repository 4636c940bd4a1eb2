// The errors of lc_asgd's predictors, and those that simpler methods would have had on the same run (predictions.csv):
//
//   own         the run's own predictions (ps.predictor)
//   last        the previous value; for k losses, k times the latest one
//   ema         the exponential mean of earlier values, with weight 0.1 for the latest
//   constant    the mean of all earlier values
//   shuffled    the run's own in random order: shows how much of their accuracy is timing
//   oracle      the mean of the 16 values before and the 16 after, which needs the future: its error is noise
//
// Steps are counted per worker. The first tenth of a run, in which all methods learn, is left out.
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

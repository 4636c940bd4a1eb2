#include "paceline/ps/predictors/predictor.h"

namespace paceline::ps {

void PredictorConfig::describe(Section& section) {
  std::vector<std::string_view> keys;
  for (const auto& row : predictors()) keys.push_back(row.key);
  section.field("predictor", predictor, "lc_asgd: what predicts losses and steps").one_of(keys);
  section.field("predictor_recording", recording, "lc_asgd, predictor=recorded: predictions.csv of an earlier run with the same seed");
  section.field("predictor_layers", layers, "lc_asgd: layers of each predictor's LSTM").at_least(1).at_most(8);
  section.field("predictor_hidden", hidden, "lc_asgd: hidden units of each layer").at_least(1).at_most(1024);
  section.field("predictor_rate", rate, "lc_asgd: learning rate of the predictors (Adam)").above(0).at_most(1);
  section.field("predictor_longest", longest, "lc_asgd: largest number of steps by which a loss is predicted ahead")
      .at_least(1)
      .at_most(65536);
}

}  // namespace paceline::ps

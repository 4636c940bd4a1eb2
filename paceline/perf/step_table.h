// A table of measured training steps of transformers, as CSV with a header (vTrain's form: Bang et al., "vTrain: A Simulation Framework for
// Evaluating Cost-effective and Compute-optimal Large Language Model Training", MICRO 2024). Columns in any order:
//
//   # GPUs, global batch, micro batch, hidden size, attention heads, # layers, sequence length, tensor parallelism, data parallelism,
//   pipeline parallelism, iteration time (ms); and, if it is not Megatron-LM's 51,200, vocabulary
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::perf {

struct MeasuredStep {
  std::int64_t line = 0;
  std::int64_t gpus = 1, global_batch = 1, micro_batch = 1;
  std::int64_t hidden = 1, heads = 1, layers = 1, sequence = 1, vocabulary = 51200;
  std::int64_t tensor = 1, data = 1, pipeline = 1;
  double seconds = 0;

  std::int64_t micro_batches() const { return global_batch / micro_batch / data; }
  std::string title() const;  // "hidden 1024, 24 layers, tensor 2 × data 2 × pipeline 2, 4 × 8 samples"
};

/// Throws DataError with `source`, the line and the column: a missing name, a value that is not a positive number, a GPU count other than
/// tensor × data × pipeline, a batch that does not divide.
std::vector<MeasuredStep> read_step_table(const std::string& text, const std::string& source);

}  // namespace paceline::perf

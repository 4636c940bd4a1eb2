// Training with several workers against training with one: the same global batches, 20 steps, one oracle for every engine and algorithm.
#pragma once

#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::conformance {

struct TrainingCase {
  std::string name;
  std::string network = "mlp";
  std::int64_t samples = 24;       // of a global batch
  std::int64_t micro_batches = 1;  // gradient accumulation
  double clip_norm = 0;
  std::string optimizer = "sgd";
  std::string update = "auto", overlap = "auto";
  double bucket_mb = 0;
};
/// Plain, accumulated, uneven and ragged shares, clipped, sharded and whole updates, with and without overlap.
const std::vector<TrainingCase>& training_cases();
/// Those that decide what is sent and in which order.
const std::vector<TrainingCase>& few_training_cases();

/// Trains this rank's worker of `comm`, with all collectives by `algorithm`, and one worker with the whole batches. Returns the largest
/// difference of a parameter, relative to the largest parameter. Collective.
double difference_from_one_worker(comm::Communicator& comm, const TrainingCase& wanted, const std::string& algorithm);

}  // namespace paceline::conformance

// Learning-rate schedules and the growing batch: pure functions of the position in the run.
//
//   rate = base rate × linear scaling × schedule × warm-up × the growth that the batch's limit prevents
//
// Linear scaling and gradual warm-up: Goyal et al. 2017. Growing the batch in place of the decay: Smith et al. 2018 (a batch f times as
// large acts as a rate f times as small). The mixed form does both: multi_step with gamma 0.2 and, at the same epochs, batch_factor 2
// act as a rate × 0.1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"

namespace paceline::optim {

/// warmup_factor: begin at the rate of the small batch if linear_scaling is on (Goyal et al.), otherwise at 0.
inline constexpr double kSmallBatchRate = -1;

/// [schedule] of a recipe. Positions are in epochs, fractions allowed.
struct ScheduleConfig {
  std::string name = "constant";
  double warmup_epochs = 0;
  double warmup_factor = kSmallBatchRate;  // the rate starts at warmup_factor × (scaled) rate
  std::vector<double> milestones = {};     // multi_step: epochs at which the rate is multiplied by gamma
  double step_epochs = 30;                 // step: epochs between two steps
  double gamma = 0.1;
  double power = 2;                                           // polynomial
  double initial_factor = 0;                                  // one_cycle: the rate starts at initial_factor × rate
  double final_factor = 0;                                    // cosine, polynomial, one_cycle: the rate ends at final_factor × rate
  double peak_epoch = 0;                                      // one_cycle: where the rate is highest; 0: 30% of the run
  std::vector<double> points_epoch = {}, points_factor = {};  // piecewise: linear between (epoch, factor)
  bool linear_scaling = false;                                // multiply the rate by batch / base_batch
  std::int64_t base_batch = 256;
  std::vector<double> batch_milestones = {};  // epochs at which the batch is multiplied by batch_factor
  double batch_factor = 2;
  std::int64_t largest_batch = 0;  // 0: no limit; beyond it, the rate falls instead of the batch growing

  void describe(Section& section);
};

/// Throws ConfigError if the fields do not make a schedule. The functions below call it; a trainer calls it before anything is loaded.
void validate(const ScheduleConfig& config);

/// The position in the run.
struct Progress {
  double epoch = 0;   // 0.5 = half of the first epoch done
  double epochs = 1;  // of the whole run
};

/// Factor of the schedule only, without warm-up and scaling, in [0, 1] (piecewise: as its points say).
using RateFactor = double (*)(const ScheduleConfig&, const Progress&);
std::span<const Entry<RateFactor>> schedules();

/// The learning rate at `progress`. `batch` is the recipe's global batch, before it grows: only that one scales the rate.
double learning_rate(const ScheduleConfig& config, double base_rate, std::int64_t batch, const Progress& progress);

/// The global batch of an epoch (0-based) when the batch grows instead of the rate falling.
std::int64_t batch_at(const ScheduleConfig& config, std::int64_t batch, std::int64_t epoch);

}  // namespace paceline::optim

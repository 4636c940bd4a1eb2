// The scalability study of Castelló, Dolz, Quintana-Ortí and Duato ("Theoretical scalability analysis of distributed deep convolutional
// neural networks", CCGRID 2019), recomputed: four networks, sweeps around one point, and whether the slides' conclusions hold.
// docs/results/ccgrid2019.md has the results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/perf/closed_forms.h"
#include "paceline/perf/step_time.h"

namespace paceline::perf {

struct StudyOptions {
  Cluster cluster;
  std::vector<std::string> networks = {"alexnet_ungrouped", "resnet50_v2", "inception_v3", "vgg16"};
  std::int64_t batch = 60;  // samples a process
  OutputTraffic traffic = OutputTraffic::once;
};

/// One step at one point: everything is as in the options, except for the swept value.
struct StepRow {
  std::string sweep, network;
  Topology topology = Topology::star;
  Method method = Method::mst;
  std::int64_t batch = 0, processes = 0;
  double flops_per_s = 0, memory_bytes_per_s = 0, link_bytes_per_s = 0;
  StepTime time;

  double swept() const;  // the swept value
};

struct IntensityRow {
  std::string network;
  std::int64_t batch = 0;
  OutputTraffic traffic = OutputTraffic::once;
  Phase phase = Phase::forward;
  Intensity value;
};

/// Fused allreduces on a star: gradients are collected until there are this many bytes.
struct FusionRow {
  std::string network;
  Method method = Method::mst;
  std::int64_t bytes = 0;  // 0: one allreduce per layer
  StepTime time;
};

/// An allreduce of all gradients by an algorithm of schedule/: in closed form, and by the steps that comm runs.
struct ScheduleRow {
  std::string network, algorithm;
  std::int64_t processes = 0;
  std::optional<double> closed_s;
  double steps_s = 0;
};

/// Whether the printed formulas support a printed statement. open: the statement is qualitative and the slides give no threshold.
enum class Verdict { yes, no, open };
std::string_view name_of(Verdict verdict);

/// A statement of the slides, and what the model says about it.
struct Conclusion {
  std::string statement;
  Verdict verdict = Verdict::open;
  std::string found;
};

inline constexpr std::string_view kSweeps[] = {"batch", "flops", "memory_bandwidth", "processes", "link_bandwidth"};

struct Study {
  StudyOptions options;
  double ridge = 0;  // flop/B
  std::vector<Topology> topologies;
  std::vector<StepRow> steps;
  std::vector<IntensityRow> intensities;
  std::vector<FusionRow> fusions;
  std::vector<ScheduleRow> schedules;
  std::vector<Conclusion> conclusions;
};

/// Throws ConfigError for an unknown network, and for one without matrix products.
Study run_ccgrid2019(StudyOptions options);

/// "ResNet-50 v2" for the four networks of the slides; others by their key.
std::string title_of(const std::string& network);

}  // namespace paceline::perf

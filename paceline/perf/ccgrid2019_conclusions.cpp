#include "paceline/perf/ccgrid2019_conclusions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "paceline/base/error.h"

namespace paceline::perf {
namespace {

Verdict verdict(bool follows) { return follows ? Verdict::yes : Verdict::no; }

/// The row of a sweep in which the swept value is `factor` times that of the options.
const StepRow& row_at(const Study& study, const std::string& network, std::string_view sweep, Method method, double factor) {
  const Cluster& cluster = study.options.cluster;
  double base = static_cast<double>(study.options.batch);
  if (sweep == "flops") base = cluster.device.flops.value;
  if (sweep == "memory_bandwidth") base = cluster.device.memory_bandwidth.value;
  if (sweep == "link_bandwidth") base = interconnect_of(cluster, Topology::star, cluster.processes()).bytes_per_s;
  for (const StepRow& row : study.steps)
    if (row.network == network && row.sweep == sweep && row.method == method && row.topology == Topology::star &&
        std::abs(row.swept() / base - factor) < 1e-9)
      return row;
  throw InternalError("a study lacks the points that its conclusions are about");
}

/// How much shorter a step becomes if a value doubles.
double gain(const Study& study, const std::string& network, std::string_view sweep, Method method) {
  const double before = row_at(study, network, sweep, method, 1).time.overlapped;
  return 1 - row_at(study, network, sweep, method, 2).time.overlapped / before;
}

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

/// "AlexNet 8%, VGG16 3%"
std::string by_network(const Study& study, const std::function<std::string(const std::string&)>& cell) {
  std::vector<std::string> cells;
  for (const std::string& network : study.options.networks) cells.push_back(title_of(network) + " " + cell(network));
  return fmt::format("{}", fmt::join(cells, ", "));
}

/// Flops over bytes of all phases together, of blocks or of whole tensors.
double mean_intensity(const Study& study, const std::string& network, std::int64_t batch, double Intensity::*which) {
  double bytes = 0, parts = 0;
  for (const IntensityRow& row : study.intensities)
    if (row.network == network && row.batch == batch && row.traffic == study.options.traffic) bytes += 1 / (row.value.*which), ++parts;
  return parts / bytes;  // the phases have about the same flops
}

/// Whether exactly Inception v3 at 10 samples lies below the ridge.
bool only_inception_at_ten(const Study& study, double Intensity::*which) {
  return std::ranges::all_of(study.options.networks, [&](const std::string& network) {
    return (mean_intensity(study, network, 10, which) < study.ridge) == (network == "inception_v3") &&
           mean_intensity(study, network, 60, which) >= study.ridge;
  });
}

Conclusion compute_bound(const Study& study) {
  const auto both = [&](double Intensity::*which) {
    return by_network(study, [&, which](const std::string& network) {
      return fmt::format("{:.0f} and {:.0f}", mean_intensity(study, network, 10, which), mean_intensity(study, network, 60, which));
    });
  };
  return {.statement = "Most CNNs are compute bound, except for Inception v3 with batch size 10k.",
          .verdict = verdict(only_inception_at_ten(study, &Intensity::blocked)),
          .found = fmt::format("flop/B at 10 and 60 samples per process, against a ridge of {:.0f}: of blocks {}; of whole tensors {}",
                               study.ridge, both(&Intensity::blocked), both(&Intensity::whole))};
}

Conclusion processor(const Study& study) {
  const auto of = [&](std::string_view what) {
    return [&, what](const std::string& network) { return gain(study, network, what, Method::bkt); };
  };
  const auto flops = of("flops"), memory = of("memory_bandwidth");
  return {.statement = "Improving the processor capabilities does not bring noticeable improvements.",
          .verdict = Verdict::open,
          .found = fmt::format("a processor twice as fast saves {} of a step (star, BKT, overlapped); memory twice as fast {}",
                               by_network(study, [&](const std::string& network) { return percent(flops(network)); }),
                               by_network(study, [&](const std::string& network) { return percent(memory(network)); }))};
}

Conclusion overlap(const Study& study) {
  const auto saved = [&](const std::string& network, Method method) {
    const StepTime& time = row_at(study, network, "batch", method, 1).time;
    return 1 - time.overlapped / time.sequential();
  };
  return {
      .statement = "Overlapping communication with computation increases the performance.",
      .verdict =
          verdict(std::ranges::all_of(study.options.networks, [&](const std::string& network) { return saved(network, Method::bkt) > 0; })),
      .found = fmt::format("it saves, on a star with MST and with BKT, {}", by_network(study, [&](const std::string& network) {
                             return fmt::format("{} and {}", percent(saved(network, Method::mst)), percent(saved(network, Method::bkt)));
                           }))};
}

Conclusion links(const Study& study) {
  const auto collective = [&](const std::string& network) {
    return 1 - row_at(study, network, "link_bandwidth", Method::bkt, 2).time.communication /
                   row_at(study, network, "link_bandwidth", Method::bkt, 1).time.communication;
  };
  return {
      .statement = "Network is important: increasing link bandwidth may reduce the execution time of collective operations.",
      .verdict = verdict(std::ranges::all_of(study.options.networks, [&](const std::string& network) { return collective(network) > 0; })),
      .found = fmt::format("links twice as fast save of the collectives (star, BKT) {}; of an overlapped step with MST and with BKT {}",
                           by_network(study, [&](const std::string& network) { return percent(collective(network)); }),
                           by_network(study, [&](const std::string& network) {
                             return fmt::format("{} and {}", percent(gain(study, network, "link_bandwidth", Method::mst)),
                                                percent(gain(study, network, "link_bandwidth", Method::bkt)));
                           }))};
}

Conclusion batches(const Study& study) {
  const double ten = 10.0 / static_cast<double>(study.options.batch), sixty = 60.0 / static_cast<double>(study.options.batch);
  const auto longer = [&](const std::string& network) {
    return row_at(study, network, "batch", Method::bkt, sixty).time.overlapped /
           row_at(study, network, "batch", Method::bkt, ten).time.overlapped;
  };
  return {.statement = "Larger mini-batches: each step requires longer computations.",
          .verdict = verdict(std::ranges::all_of(study.options.networks, [&](const std::string& network) { return longer(network) > 1; })),
          .found = fmt::format("a step of 60 samples per process takes, in steps of 10 (star, BKT, overlapped), {}",
                               by_network(study, [&](const std::string& network) { return fmt::format("{:.1f}", longer(network)); }))};
}

}  // namespace

std::vector<Conclusion> conclusions_of(const Study& study) {
  return {compute_bound(study), processor(study), overlap(study), links(study), batches(study)};
}

}  // namespace paceline::perf

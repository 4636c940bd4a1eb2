// The planner's model for the rows of a table of measured steps. Everything that does not depend on the cluster is created once.
#pragma once

#include <map>
#include <memory>

#include "paceline/graph/graph.h"
#include "paceline/perf/calibrate.h"

namespace paceline::perf {

class TableModel {
 public:
  TableModel(const std::vector<MeasuredStep>& steps, Programs allreduce);
  ~TableModel();

  /// The predicted seconds of these rows, in their order.
  std::vector<double> predict(const Cluster& cluster, const Overheads& overheads, const std::vector<std::size_t>& rows) const;

 private:
  struct Network;
  struct Row;
  const std::vector<MeasuredStep>& steps_;
  std::map<std::vector<std::int64_t>, std::unique_ptr<Network>> networks_;
  std::vector<Row> rows_;
};

}  // namespace paceline::perf

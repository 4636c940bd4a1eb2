// paceline verify --table FILE.csv --calibrate FRACTION: the planner's model against a table of measured steps.
#pragma once

#include "command.h"

namespace paceline::cli {

struct TableFlags {
  std::string table, cluster = "v100", write_cluster, out;
  double calibrate = 0.1;
  std::int64_t seed = 1;
};

/// Adds --table and the flags that only apply with it; returns --table.
CLI::Option* add_table_flags(CLI::App& app, TableFlags& flags);
int run_verify_table(const TableFlags& flags, bool json);

}  // namespace paceline::cli

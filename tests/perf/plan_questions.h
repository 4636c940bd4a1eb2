// Small networks, and what to ask the planner about them.
#pragma once

#include <string>

#include "paceline/graph/registry.h"
#include "paceline/perf/plan.h"
#include "plan_programs.h"

namespace paceline::perf {

inline graph::Graph small_gpt(std::int64_t layers = 6, std::int64_t width = 256) {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = layers, config.width = width, config.heads = 8, config.classes = 1000, config.input = {128};
  return graph::make_graph(config);
}
inline graph::Graph network(const std::string& key) {
  graph::ModelConfig config;
  config.network = key;
  return graph::make_graph(config);
}

inline PlanQuestion ask(const graph::Graph& graph, const std::string& cluster, std::int64_t workers, std::int64_t batch) {
  PlanQuestion question;
  question.graph = &graph, question.cluster = find_cluster(cluster), question.workers = workers, question.batch = batch;
  question.strategies.alone = {.key = "single", .programs = lonely_programs};
  question.strategies.together = {.key = "allreduce", .programs = plain_programs};
  return question;
}

}  // namespace paceline::perf

#include "paceline/observe/summary.h"

#include <nlohmann/json.hpp>

#include "paceline/base/files.h"

namespace paceline::observe {

// Prints NaN as null.
nlohmann::ordered_json to_json(const RunEnded& e) {
  nlohmann::ordered_json json = {{"workers", e.workers},
                                 {"steps", e.steps},
                                 {"epochs", e.epochs},
                                 {"samples", e.samples},
                                 {"seconds", e.seconds},
                                 {"samples_per_s", e.samples_per_s},
                                 {"step_s", e.step_s},
                                 {"train_loss", e.train_loss},
                                 {"test_loss", e.test_loss},
                                 {"test_accuracy", e.test_accuracy},
                                 {"state_hash", e.state_hash},
                                 {"parameters_hash", e.parameters_hash},
                                 {"run", e.run}};
  for (const Measured& metric : e.test_metrics) json["test_metrics"][metric.name] = metric.value;
  if (const auto& c = e.checkpoints)
    json["checkpoints"] = {
        {"written", c->written}, {"paused_s", c->paused_s}, {"final_wait_s", c->final_wait_s}, {"writer_cpu_s", c->writer_s}};
  const WallTime& wall = e.wall;
  json["wall_s"] = {{"total", wall.total()},         {"start", wall.start},
                    {"steps", wall.steps},           {"data", wall.data},
                    {"evaluation", wall.evaluation}, {"checkpoints", wall.checkpoints},
                    {"final_wait", wall.final_wait}, {"rest", wall.rest}};
  if (e.skipped_steps > 0) json["skipped_steps"] = e.skipped_steps;
  if (!e.stopped.empty()) json["stopped"] = e.stopped;
  if (const auto& c = e.communication)
    json["communication"] = {
        {"exposed", c->exposed},
        {"hidden", c->hidden},
        {"straggler_spread", c->straggler_spread},
        {"bytes_per_step", c->bytes_per_step},
        {"bytes_by_axis",
         {{"data", c->bytes_per_step - c->bytes_pipeline - c->bytes_tensor}, {"pipeline", c->bytes_pipeline}, {"tensor", c->bytes_tensor}}},
        {"ratio", c->ratio}};
  if (const auto& s = e.served) {
    json["server"] = {{"updates", s->updates},
                      {"gradients", s->gradients},
                      {"dropped", s->dropped},
                      {"refused", s->refused},
                      {"mean_staleness", s->mean_staleness},
                      {"staleness", s->staleness},
                      {"virtual_seconds", s->virtual_s},
                      {"iteration_ms", s->iteration_ms},
                      {"predictor_ms", s->predictor_ms},
                      {"loss_predictor_ms", s->loss_predictor_ms},
                      {"step_predictor_ms", s->step_predictor_ms}};
    for (const EvaluatedView& view : e.views) json["views"][view.view] = {{"test_loss", view.loss}, {"test_accuracy", view.accuracy}};
  }
  return json;
}

nlohmann::ordered_json to_json(const Prediction& p, const RunEnded& end) {
  const auto& talk = end.communication;
  // Several workers whose communication nobody measured: those of a parameter server in this process.
  const double nothing = end.workers > 1 ? kUnknown : 0, exposed = talk ? talk->exposed * end.step_s : nothing;
  return {{"cluster", p.cluster},
          {"profile", p.profile},
          {"predicted",
           {{"step_s", p.step_s},
            {"low_s", p.low_s},
            {"high_s", p.high_s},
            {"compute_s", p.compute_s},
            {"optimizer_s", p.optimizer_s},
            {"encoding_s", p.encoding_s},
            {"exposed_s", p.exposed_s},
            {"bubble_s", p.bubble_s},
            {"straggling_s", p.straggling_s},
            {"bytes", p.bytes},
            {"memory_bytes", p.memory_bytes},
            {"bottleneck", p.bottleneck}}},
          {"measured",
           {{"step_s", end.step_s},
            {"computing_s", end.step_s - exposed},
            {"exposed_s", exposed},
            {"bytes", talk ? talk->bytes_per_step : nothing},
            {"memory_bytes", end.memory_bytes}}},
          {"error", p.step_s / end.step_s - 1},
          {"notes", p.notes}};
}

nlohmann::ordered_json to_json(const RunEnded& end, const RunStarted& start) {
  nlohmann::ordered_json json = to_json(end);
  json.update({{"network", start.network},
               {"dataset", start.dataset},
               {"optimizer", start.optimizer},
               {"strategy", start.strategy},
               {"engine", start.engine},
               {"device", start.device},
               {"precision", start.precision},
               {"parameters", start.parameters},
               {"macs", start.macs},
               {"train_samples", start.train_samples},
               {"test_samples", start.test_samples},
               {"batch", start.batch},
               {"first_step", start.first_step}});
  if (!start.class_names.empty()) json["class_names"] = start.class_names;
  if (!start.mesh.empty()) json["mesh"] = start.mesh;
  if (start.prediction) json["prediction"] = to_json(*start.prediction, end);
  return json;
}

void Summary::on(const Event& event) {
  if (const auto* start = std::get_if<RunStarted>(&event)) start_ = *start;
  if (const auto* end = std::get_if<RunEnded>(&event))
    write_atomically(file_, to_json(*end, start_).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace paceline::observe

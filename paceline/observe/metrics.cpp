#include "paceline/observe/metrics.h"

#include <nlohmann/json.hpp>

namespace paceline::observe {
namespace {

using Json = nlohmann::ordered_json;

Json line_of(const StepDone& e) {
  return {{"event", "step"},
          {"step", e.step},
          {"epoch", e.epoch},
          {"loss", e.loss},
          {"accuracy", e.accuracy},
          {"rate", e.rate},
          {"samples", e.samples},
          {"seconds", seconds(e.duration)},
          {"communication_share", e.communication_share},
          {"hidden_share", e.hidden_share},
          {"bytes_sent", e.bytes_sent}};
}

Json line_of(const EpochDone& e) {
  return {{"event", "epoch"},           {"epoch", e.epoch},
          {"train_loss", e.train_loss}, {"train_accuracy", e.train_accuracy},
          {"samples", e.samples},       {"seconds", seconds(e.duration)}};
}

Json line_of(const Evaluated& e) {
  return {{"event", "evaluation"},           {"step", e.step}, {"epoch", e.epoch}, {"test_loss", e.loss}, {"test_accuracy", e.accuracy},
          {"training_seconds", e.training_s}};
}

Json line_of(const EvaluatedView& e) {
  return {{"event", "view"}, {"step", e.step}, {"epoch", e.epoch}, {"view", e.view}, {"test_loss", e.loss}, {"test_accuracy", e.accuracy}};
}

Json line_of(const CheckpointWritten& e) {
  return {{"event", "checkpoint"}, {"step", e.step}, {"file", e.file}, {"bytes", e.bytes}, {"seconds", seconds(e.duration)}};
}

}  // namespace

void MetricsLog::on(const Event& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { line_of(e); })
          // A path may hold any bytes; JSON may not.
          out_.write(line_of(e).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
      },
      event);
  if (!std::holds_alternative<StepDone>(event) && !std::holds_alternative<Span>(event)) out_.flush();
}

}  // namespace paceline::observe

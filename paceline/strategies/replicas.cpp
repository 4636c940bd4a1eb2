#include "paceline/strategies/replicas.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/tensor/host_copy.h"

namespace paceline::strategies {
namespace {

constexpr const char* kParameters = "workers.parameters";

}  // namespace

data_parallel::MeetingSetup meeting_setup(const StrategyConfig& config, const step::Context& context, const std::string& needs_host) {
  if (context.compression != "none")
    throw ConfigError(fmt::format(
        "comm.compression={} compresses gradients, but strategy '{}' exchanges none; use strategy.name=allreduce or comm.compression=none",
        context.compression, config.name));
  if (!needs_host.empty() && !context.model.device().is_cpu())
    throw ConfigError(fmt::format("strategy '{}': {}; use train.device=cpu or local_sgd", config.name, needs_host));
  if (config.batch_norm == "sync" && context.workers() > 1)
    throw ConfigError(
        fmt::format("strategy.batch_norm=sync needs workers that make every step together, but those of '{}' step on their own; use "
                    "strategy.batch_norm=local",
                    config.name));
  return {.arena = context.model.arena(), .comm = context.comm(), .seed = context.seed};
}

data_parallel::MeetingSetup messages_setup(const StrategyConfig& config, const step::Context& context) {
  if (context.workers() > 1 && comm::engine_of(context.comm().engine()).gpu == comm::Engine::Gpu::own)
    throw ConfigError(
        fmt::format("strategy '{}': workers send to each other at the same time, which would block forever with comm.engine={}; use "
                    "comm.engine=shm, threads (paceline train --workers N), or local_sgd",
                    config.name, context.comm().engine()));
  return meeting_setup(config, context);
}

std::vector<schedule::Program> replicas_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings,
                                                WriteMeeting meeting) {
  if (settings.pipeline > 1 || settings.zero > 0)
    throw ConfigError("replicas are whole models that each worker updates by itself; use parallel.pipeline=1 and parallel.zero=0");
  schedule::ProgramWriter writer(model, settings, 0);
  writer.passes();
  writer.update_all(writer.elements());
  if (settings.data > 1) meeting(writer, settings, writer.elements());
  return {writer.take()};
}

void write_average(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  writer.communicate(schedule::Action::Lane::compute, schedule::Action::Exchange::allreduce, schedule::Action::Axis::data, elements,
                     static_cast<double>(settings.storage_bytes));
}

void write_swap(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  using schedule::Action;
  const auto bytes = static_cast<double>(settings.storage_bytes);
  const std::vector<int> updated = writer.last(Action::Lane::compute);
  const int sent = writer.message(Action::Lane::send, Action::Exchange::send, Action::Axis::data, 1, 0, elements, bytes, updated);
  writer.message(Action::Lane::compute, Action::Exchange::receive, Action::Axis::data, -1, 0, elements, bytes);
  writer.wait({sent});
}

Replicas::Replicas(const StrategyConfig& config, const step::Context& context, std::unique_ptr<data_parallel::Meeting> meeting)
    : context_(context),
      pass_(context_),
      updater_(context.model.arena(), context.optim, &context.mesh),
      statistics_(context_, config.batch_norm, config.statistics),
      recorded_(context, context.record_steps && !updater_.meets()),
      on_stream_(context.model.device()),
      meeting_(std::move(meeting)) {}

step::StepResult Replicas::step(const step::Batch& batch, const step::Point& point) {
  const step::PhaseSpan span(context_, "step");
  pass_.begin_step(point.step);
  updater_.begin_step({.rate = static_cast<float>(point.rate), .step = point.step});
  const std::int64_t targets = batch.targets.numel();
  const at::Tensor sums = recorded_.result(batch, pass_, [&] {
    // The mean of the worker's own share.
    const at::Tensor scored = pass_.run(batch, 1.0 / static_cast<double>(std::max<std::int64_t>(targets, 1)));
    const step::PhaseSpan update(context_, "update");
    updater_.update_all();
    return scored;
  });
  const Nanoseconds began = context_.clock.now();
  {
    const step::PhaseSpan meeting(context_, "meet", "communication");
    on_stream_.begin();
    const std::int64_t sent = meeting_->meet(point);
    on_stream_.end();
    traffic_.bytes_sent += sent, traffic_.bytes_plain += sent;
  }
  const double spent = on_stream_.measures() ? 0 : seconds(context_.clock.now() - began);
  traffic_.exposed_s += spent, traffic_.communication_s += spent;
  context_.model.refresh();
  return {sums, targets};
}

void Replicas::agree() {
  own_ = tensor::host_copy(parameters());
  meeting_->agree();
  statistics_.agree();
  context_.model.refresh();
}

void Replicas::resume_training() {
  if (own_.defined()) parameters().copy_(own_);
  own_.reset();
  for (std::size_t i = 0; i < own_moments_.size(); ++i) at::Tensor(updater_.buffers()[i]).copy_(own_moments_[i]);
  own_moments_.clear();
  statistics_.resume_training();
  context_.model.refresh();
}

std::vector<step::NamedTensor> Replicas::save() {
  comm::Communicator& comm = context_.comm();
  std::vector<step::NamedTensor> state;
  const auto add_copy = [&](const std::string& name, const at::Tensor& copy) {
    state.push_back(data_parallel::own_row(comm, name, copy));
    state.back().copied = true;
  };
  add_copy(kParameters, own_);
  // The mean of the optimizers' states is saved under the usual names, so that another strategy or another number of workers can continue
  // from it.
  for (std::size_t i = 0; i < updater_.buffers().size(); ++i) {
    at::Tensor buffer = updater_.buffers()[i];
    own_moments_.push_back(tensor::host_copy(buffer));
    add_copy(fmt::format("workers.optim.{}", i), own_moments_.back());
    data_parallel::average_rows(comm, buffer);
  }
  for (step::NamedTensor& item : updater_.state()) state.push_back(std::move(item));
  for (const step::NamedTensor& item : meeting_->memory())
    state.push_back(data_parallel::own_row(comm, "workers." + item.name, item.tensor));
  for (step::NamedTensor& item : statistics_.save()) state.push_back(std::move(item));
  return state;
}

void Replicas::load(std::span<const step::NamedTensor> state) {
  meeting_->prepare();  // the module still has the agreed parameters, because another strategy's checkpoint has no state of this meeting
  updater_.load(state);
  statistics_.load(state);
  const auto replicas = step::saved_shape(state, kParameters);
  const bool same_workers = replicas && replicas->at(0) == context_.workers();
  if (same_workers) {
    at::Tensor mine = parameters();
    data_parallel::take_row(context_.comm(), state, kParameters, mine);
    for (std::size_t i = 0; i < updater_.buffers().size(); ++i) {
      at::Tensor buffer = updater_.buffers()[i];
      const std::string name = fmt::format("workers.optim.{}", i);
      data_parallel::take_row(context_.comm(), state, name, buffer);
    }
  }
  const bool takes_memory = same_workers || !meeting_->remembers_replica();
  for (step::NamedTensor& item : takes_memory ? meeting_->memory() : std::vector<step::NamedTensor>()) {
    const std::string name = "workers." + item.name;
    if (step::saved_shape(state, name)) data_parallel::take_row(context_.comm(), state, name, item.tensor);
  }
  meeting_->loaded();
}

}  // namespace paceline::strategies

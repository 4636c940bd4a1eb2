#include "paceline/central/central.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/norm_reports.h"
#include "paceline/ps/kernels.h"
#include "paceline/step/momentum.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::central {
namespace {

struct Pairing {
  std::string_view strategy, rule, consistency;
};

constexpr Pairing kPairings[] = {
    {"ssgd", "average", "bsp"},
    {"ssp", "asgd", "ssp"},
    {"asgd", "asgd", "asp"},
    {"dc_asgd", "dc_asgd", "asp"},
    {"lc_asgd", "lc_asgd", "asp"},
    {"staleness_aware", "staleness_aware", "asp"},
    {"gap_aware", "gap_aware", "asp"},
    {"dana", "dana", "asp"},
    {"downpour", "downpour", "asp"},
    {"k_sync", "average", "k_sync"},
    {"k_batch_sync", "average", "k_batch_sync"},
    {"k_async", "average", "k_async"},
    {"k_batch_async", "average", "k_batch_async"},
    {"adasync", "average", "adasync"},
    {"ps", "", ""},  // whatever [ps] says
};

/// Messages are made slower on the virtual clock alone, and a run is recorded where one server sees all of its real workers.
void check_timing(const ps::TimingConfig& timing, const std::string& executor, std::int64_t servers) {
  if (timing.varies_network() && executor != "virtual" && executor != "auto")
    throw ConfigError(
        fmt::format("timing.{} is of the virtual clock, and the messages of ps.executor={} take the time that they take; use "
                    "ps.executor=virtual, or timing.slow_workers, which real workers know too",
                    timing.slow_links.empty() ? "network_distribution" : "slow_links", executor));
  if (timing.record.empty()) return;
  if (executor != "threads" && executor != "auto")
    throw ConfigError(fmt::format(
        "timing.record writes down what real workers of one process do, and not ps.executor={}; use ps.executor=threads", executor));
  if (servers > 1)
    throw ConfigError(
        fmt::format("timing.record: {} servers have an order of events each, and one is recorded; use ps.servers=1", servers));
}

/// What a compressor makes of pushes, the rule must be able to use, and the server's optimizer.
void check_compression(const std::string& compression, const ps::PsConfig& ps, const optim::OptimConfig& optim, int workers) {
  ps::PushCompression{.name = compression}.check(ps::make_rule(ps.rule, ps, optim, workers)->needs().replica);
  if (!step::corrects_momentum(compression)) return;
  if (ps.pushes_steps())
    throw ConfigError(fmt::format(
        "comm.compression={} keeps a momentum of its own, and with ps.optimizer=worker steps have theirs already; use ps.optimizer=server",
        compression));
  ps::check_takes_steps(ps.rule, fmt::format("comm.compression={} pushes velocities", compression), "comm.compression=topk");
  step::optimizer_behind(compression, optim);
}

class Central final : public step::Strategy {
 public:
  explicit Central(std::string name) : name_(std::move(name)) {}

  void setup(const step::Context& context) override {
    context_.emplace(context);
    ps_ = paired(name_, context.ps);
    if (context.compression != "none" && ps_.executor != "processes")
      throw ConfigError(
          fmt::format("comm.compression={} needs something to send, and ps.executor={} sends nothing; use comm.compression=none",
                      context.compression, ps_.executor));
    if (context.comm.size() > 1)
      throw ConfigError(
          fmt::format("strategy '{}' has all its workers in one process with ps.executor={}; start it without a launcher, with "
                      "--workers {}",
                      name_, ps_.executor, context.comm.size()));
    const std::string executor = ps_.executor != "auto" ? ps_.executor : context.module.device().is_cpu() ? "threads" : "virtual";
    if (executor == "virtual" && ps_.servers > 1)
      throw ConfigError(
          fmt::format("ps.servers={}, but on a GPU ps.executor=auto is virtual, where one thread plays everything; use ps.servers=1 or "
                      "ps.executor=threads",
                      ps_.servers));
    check_timing(context.timing, executor, ps_.servers);
    executor_ = executor == "virtual"   ? make_virtual_executor(*context_, ps_)
                : executor == "threads" ? make_threads_executor(*context_, ps_)
                                        : make_processes_executor(*context_, ps_);
    reads_batches_ = executor != "processes";
    // Workers in other processes keep their running statistics to themselves.
    if (executor == "processes" && ps_.statistics == kWorkerView)
      throw ConfigError("ps.statistics=worker needs the workers in this process; use ps.statistics=async or recomputed");
    views_ = {ps_.statistics};
    for (const char* view : {kAsyncView, kWorkerView, kRecomputedView}) {
      const bool known = executor != "processes" || view != std::string_view(kWorkerView);
      if (known && context.module.statistics().length() > 0 && ps_.statistics != view) views_.emplace_back(view);
    }
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override { return executor_->step(batch, point); }
  step::StepResult finish() override { return executor_->finish(); }
  bool reads_batches() const override { return reads_batches_; }
  std::int64_t parts() const override { return context_->played; }
  std::vector<std::string> views() const override { return views_; }
  void agree(std::size_t view) override { executor_->show(views_.at(view)); }
  void resume_training() override { executor_->resume_training(); }
  std::vector<step::NamedTensor> save() override { return executor_->save(); }
  void load(std::span<const step::NamedTensor> state) override { executor_->load(state); }
  std::optional<observe::Served> served() const override { return executor_->served(); }
  bool wants_checkpoint() const override { return executor_->wants_checkpoint(); }
  bool refuses() const override { return true; }

 private:
  std::string name_;
  std::optional<step::Context> context_;
  ps::PsConfig ps_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::string> views_;
  bool reads_batches_ = true;
};

at::Tensor as_tensor(float* data, std::int64_t count, const c10::Device& device) {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(at::kFloat).device(device));
}

}  // namespace

void validate_central(const std::string& strategy, const ps::PsConfig& config, const ps::TimingConfig& timing,
                      const optim::OptimConfig& optim, const std::string& compression, int workers) {
  const ps::PsConfig ps = paired(strategy, config);
  ps::validate(ps, optim, workers);
  ps::validate(timing, workers);
  if (ps.executor == "virtual" && ps.servers > 1)
    throw ConfigError(fmt::format(
        "ps.servers={}, but under ps.executor=virtual one thread plays everything; use ps.servers=1 or ps.executor=threads", ps.servers));
  check_timing(timing, ps.executor, ps.servers);
  if (ps.executor == "processes" && compression != "none") check_compression(compression, ps, optim, workers);
}

std::unique_ptr<step::Strategy> make_central(const std::string& strategy) { return std::make_unique<Central>(strategy); }

ps::PsConfig paired(const std::string& strategy, ps::PsConfig ps) {
  const auto pairing = std::ranges::find(kPairings, strategy, &Pairing::strategy);
  if (!pairing->rule.empty()) ps.rule = pairing->rule, ps.consistency = pairing->consistency;
  return ps;
}

bool is_centralised(const std::string& name) { return std::ranges::find(kPairings, name, &Pairing::strategy) != std::end(kPairings); }

bool is_asynchronous(const std::string& strategy, const ps::PsConfig& ps) {
  if (!is_centralised(strategy)) return false;
  const std::string consistency = paired(strategy, ps).consistency;
  return consistency != "bsp" && consistency != "k_sync" && consistency != "k_batch_sync";
}

ps::Allocate allocate_on(const c10::Device& device) {
  return [device](std::int64_t count) {
    const at::Tensor memory =
        tensor::allocate_pages(std::max<std::int64_t>(count, 1), at::TensorOptions().dtype(at::kFloat).device(device));
    tensor::synchronize(device);  // it is filled with zeros on the stream of whoever came first, which the server's does not wait for
    return std::shared_ptr<float[]>(memory.data_ptr<float>(), [memory](float*) {});  // the tensor lives as long as the pointer
  };
}

ps::Server::Setup server_setup(const step::Context& context) {
  const tensor::Arena& arena = context.module.arena();
  ps::Server::Setup setup;
  for (const tensor::Entry& entry : arena.entries()) setup.segments.push_back({entry.offset, entry.count, entry.decay});
  setup.length = setup.end = arena.length();
  setup.statistics = context.module.statistics().length();
  setup.workers = context.played;
  setup.seed = context.seed;
  const c10::Device& device = context.module.device();
  setup.allocate = allocate_on(device);
  setup.place = {.cuda = device.is_cuda(), .stream = tensor::current_stream(device)};
  return setup;
}

std::vector<std::int64_t> cuts_of(const step::Context& context, std::int64_t servers) {
  const ps::Server::Setup setup = server_setup(context);
  const auto optimizer =
      optim::make_optimizer(ps::server_optimizer(context.ps, step::optimizer_behind(context.compression, context.optim)));
  return ps::cut_ranges(setup.segments, setup.length, static_cast<int>(servers), optimizer->elementwise());
}

std::shared_ptr<ps::Host> make_host(const step::Context& context, const ps::PsConfig& ps, std::span<const std::int64_t> cuts,
                                    std::size_t index) {
  ps::Server::Setup setup = server_setup(context);
  setup.begin = cuts[index], setup.end = cuts[index + 1];
  if (index > 0) setup.statistics = 0;  // the first server has them
  setup.keeps_previous = cuts.size() > 2 && context.cluster.max_restarts > 0 &&
                         ps::make_consistency(ps.consistency, ps, context.played)->waits_for_everybody();
  auto server = std::make_unique<ps::Server>(ps, step::optimizer_behind(context.compression, context.optim), setup);
  const c10::Device& device = context.module.device();
  as_tensor(server->parameters(), server->length(), device)
      .copy_(context.module.arena().parameters().narrow(0, setup.begin, server->length()));
  if (setup.statistics > 0) as_tensor(server->statistics(), setup.statistics, device).copy_(context.module.statistics().parameters());
  return std::make_shared<ps::Host>(
      std::move(server),
      ps::Host::Limits{.wait = ps.deadline(), .silence = ps.deadline(), .started_again = context.cluster.max_restarts > 0});
}

ps::PushCompression push_compression(const step::Context& context) {
  return {.name = context.compression == "none" ? "" : context.compression,
          .settings = context.compress,
          .seed = context.seed,
          .momentum = context.optim.momentum,
          .workers = context.played};
}

ps::ServiceOptions service_options(const step::Context& context, std::span<const std::int64_t> cuts, std::size_t index) {
  ps::ServiceOptions options;
  options.begin = cuts[index], options.end = cuts[index + 1];
  options.security = ps::security_of(context.ps, context.cluster);
  options.compression = push_compression(context);
  options.terms = context.terms;
  options.durable = context.ps.replica && !context.cluster.ranks;
  return options;
}

ps::JoinOptions join_options(const step::Context& context) {
  return {.worker = context.cluster.index,
          .security = ps::security_of(context.ps, context.cluster),
          .compression = push_compression(context),
          .terms = context.terms,
          .deadline = context.ps.patience(),
          .patience = context.ps.patience()};
}

ps::Layout layout_of(const step::Context& context) {
  const tensor::Arena& arena = context.module.arena();
  ps::Layout layout;
  for (const tensor::Entry& entry : arena.entries())
    layout.entries.push_back({entry.name, entry.shape, entry.offset, entry.count, entry.decay});
  layout.length = arena.length();
  layout.statistics = context.module.statistics().length();
  return layout;
}

std::vector<step::NamedTensor> save_server(ps::Server& server, const std::string& prefix, const c10::Device& device) {
  std::vector<step::NamedTensor> state;
  for (const ps::Server::Array& array : server.arrays())
    state.push_back({prefix + array.name, as_tensor(array.data, array.count, device).clone()});
  const std::vector<std::int64_t> numbers = server.numbers();
  state.push_back({prefix + "version", at::tensor({server.version()}, at::kLong)});
  state.push_back({prefix + kServerNumbers, at::tensor(at::ArrayRef<std::int64_t>(numbers))});
  if (const std::vector<std::int64_t> ledger = server.ledger(); !ledger.empty())
    state.push_back({prefix + kServerLedger, at::tensor(at::ArrayRef<std::int64_t>(ledger))});
  if (const std::vector<float> predictors = server.predictor_state(); !predictors.empty())
    state.push_back({prefix + "predictors", at::tensor(at::ArrayRef<float>(predictors))});
  return state;
}

void load_server(ps::Server& server, std::span<const step::NamedTensor> state, const std::string& prefix, const c10::Device& device) {
  const at::Tensor numbers = step::find_saved(state, prefix + kServerNumbers);
  const auto saved = std::ranges::find(state, prefix + "predictors", &step::NamedTensor::name);
  const at::Tensor predictors = saved == state.end() ? at::empty({0}) : saved->tensor.contiguous();
  const auto copy_arrays = [&](bool really) {
    for (const ps::Server::Array& array : server.arrays()) {
      const auto found = std::ranges::find(state, prefix + array.name, &step::NamedTensor::name);
      const bool of_worker = array.name.starts_with("pulled.") || array.name.starts_with("kept.") || array.name.starts_with("answer.");
      if (found == state.end() && of_worker) continue;  // a worker that was not there
      if (found == state.end() || found->tensor.numel() != array.count)
        throw ConfigError(
            fmt::format("the checkpoint has no fitting '{}{}'; resume with the same [ps], [optim] and workers", prefix, array.name));
      if (really) as_tensor(array.data, array.count, device).copy_(found->tensor);
    }
  };
  copy_arrays(false);  // nothing changes before all is known to fit
  const auto gathered = std::ranges::find_if(state, [&](const step::NamedTensor& item) {
    return item.name == prefix + "gathered" || (item.name.starts_with(prefix + "round.") && item.name.ends_with(".gradient"));
  });
  server.load({numbers.data_ptr<std::int64_t>(), static_cast<std::size_t>(numbers.numel())},
              {predictors.data_ptr<float>(), static_cast<std::size_t>(predictors.numel())},
              gathered != state.end() && gathered->tensor.numel() == server.length());
  const auto ledger = std::ranges::find(state, prefix + kServerLedger, &step::NamedTensor::name);
  if (ledger != state.end())
    server.load_ledger({ledger->tensor.data_ptr<std::int64_t>(), static_cast<std::size_t>(ledger->tensor.numel())});
  copy_arrays(true);
}

observe::Served served_by(const ps::Server& server) {
  observe::Served served;
  served.updates = server.version(), served.dropped = server.dropped(), served.refused = server.refused();
  double sum = 0;
  for (const auto& [staleness, count] : server.staleness()) {
    served.staleness.emplace_back(staleness, count);
    served.gradients += count, sum += static_cast<double>(staleness * count);
  }
  served.mean_staleness = served.gradients > 0 ? sum / static_cast<double>(served.gradients) : 0;
  if (const ps::PredictorRecord* record = server.predictors()) {
    const double reports = std::max<double>(1, static_cast<double>(record->actual_loss.size()));
    served.loss_predictor_ms = 1e3 * record->loss_seconds / reports, served.step_predictor_ms = 1e3 * record->step_seconds / reports;
    served.predicted_loss = record->predicted_loss, served.actual_loss = record->actual_loss;
    served.predicted_steps = record->predicted_steps, served.actual_steps = record->actual_steps;
  }
  return served;
}

at::Tensor finite_on_device(const at::Tensor& values) { return at::linalg_vector_norm(values, INFINITY).lt(INFINITY); }

void Finished::add(double loss, double right, std::int64_t targets) {
  if (std::isfinite(loss)) loss_ += loss, right_ += right, targets_ += targets;
  else refused_ += targets;
}

step::StepResult Finished::take() {
  if (targets_ == 0 && refused_ > 0) loss_ = NAN, targets_ = refused_;
  step::StepResult result{at::tensor({loss_, right_}, at::kDouble), targets_};
  *this = {};
  return result;
}

bool all_finite(const at::Tensor& values) {
  if (!values.device().is_cpu()) return finite_on_device(values).item<bool>();
  return ps::all_finite(values.data_ptr<float>(), values.numel());
}

void copy_into(step::Batch& place, const step::Batch& batch) {
  if (!place.inputs.defined() || place.inputs.sizes() != batch.inputs.sizes())
    place = {batch.inputs.clone(), batch.targets.clone(), batch.global_samples};
  else place.inputs.copy_(batch.inputs), place.targets.copy_(batch.targets), place.global_samples = batch.global_samples;
}

}  // namespace paceline::central

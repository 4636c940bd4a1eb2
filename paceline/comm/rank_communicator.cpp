#include "paceline/comm/rank_communicator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "paceline/base/log.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/gpu_beside.h"
#include "paceline/comm/gpu_message.h"
#include "paceline/comm/hierarchical.h"
#include "paceline/comm/split.h"
#include "paceline/comm/step_runner.h"
#include "paceline/comm/validate.h"

namespace paceline::comm {
namespace {

using Kind = Operation::Kind;

constexpr Tag kCollectiveTags = Tag{1} << 32;  // a user's tags lie below

/// The first of a collective's own tags, of which each has Hierarchical::kLanes. They repeat after a billion collectives, when no rank is
/// left in the first.
Tag tags_of(const Call& call) {
  const auto number = static_cast<std::uint32_t>(call.sequence) % (std::uint32_t{1} << 30);
  return kCollectiveTags + static_cast<Tag>(number) * Hierarchical::kLanes;
}

/// A send or a receive. It is posted when it is first driven: only then does this thread have the engine to itself.
class Message final : public Activity {
 public:
  Message(Transport& transport, const Operation& operation) : transport_(transport), op_(operation) {}

  bool advance() override {
    if (!request_) post();
    return request_->test();
  }
  int waits_for() const override { return op_.peer; }

 private:
  void post() {
    const auto tag = static_cast<Tag>(op_.tag);
    request_ = op_.kind == Kind::send ? transport_.send(op_.peer, tag, op_.buffer.data, op_.buffer.bytes())
                                      : transport_.receive(op_.peer, tag, op_.buffer.data, op_.buffer.bytes(), {});
  }

  Transport& transport_;
  Operation op_;
  std::unique_ptr<Transport::Request> request_;
};

}  // namespace

RankCommunicator::RankCommunicator(std::unique_ptr<Endpoint> endpoint, const CommConfig& config, Judge judge)
    : endpoint_(std::move(endpoint)),
      topology_(endpoint_->topology()),
      config_(config),
      judge_(std::move(judge)),
      driver_(endpoint_->waiter(), judge_) {}

void RankCommunicator::run(const Operation& operation) {
  const Call call = prepare(operation);
  if (call.operation.is_collective()) {
    const Execution execution = execution_of(call.operation);
    if (execution.path && execution.path->run) return execution.path->run(site_of(call, execution), driver_, call);
  }
  driver_.run(activity_for(call), call);
}

Work RankCommunicator::start(const Operation& operation) {
  const Call call = prepare(operation);
  if (call.operation.is_collective() && call.operation.buffer.on_gpu) return start_beside(call);
  return driver_.start(activity_for(call), call);
}

Work RankCommunicator::start_beside(Call call) {
  Buffer& buffer = call.operation.buffer;
  const gpu::OnDeviceOf device(buffer.data);
  if (!beside_) beside_ = std::make_unique<gpu::Queue>();
  void* const callers = buffer.stream;
  buffer.stream = beside_->stream();
  const auto mark = std::make_shared<gpu::Mark>();
  mark->record(callers);  // the work that fills the buffer
  mark->hold(buffer.stream);
  Work work = driver_.start(std::make_unique<Marked>(activity_for(call), mark, buffer.stream), call);
  return Work(std::make_shared<WaitedForByStream>(std::move(work), mark, callers));
}

Call RankCommunicator::prepare(const Operation& operation) {
  Call call{.operation = operation, .sequence = 0, .rank = rank(), .ranks = size()};
  Operation& op = call.operation;
  validate(op, rank(), size());
  check_gpu(op);
  if (op.deadline.count() == 0) op.deadline = config_.deadline();
  if (op.is_collective()) {
    op.algorithm = algorithm_of(op);
    schedule::algorithm_for(op.algorithm, op.collective());  // throws with the list of algorithms if there is none
    call.sequence = ++collectives_;                          // last: a call that was refused must not be counted
  } else {
    call.sequence = ++messages_;
  }
  return call;
}

void RankCommunicator::check_gpu(const Operation& op) const {
  if (!op.buffer.on_gpu && !op.input.on_gpu) return;
  const auto refuse = [&](const std::string& why) { throw ConfigError(fmt::format("{}: {}", describe(op), why)); };
  const bool can = engine_of(engine()).gpu != Engine::Gpu::none && gpu::available() && endpoint_->host_group()->size() == size();
  if (!can) refuse(fmt::format("the {} engine does not carry memory of a GPU; use comm.engine=nccl, or give it tensor.cpu()", engine()));
  if (!op.is_collective()) return;
  if (size() > gpu::kMostRanks) refuse(fmt::format("at most {} ranks reduce in memory of GPUs", gpu::kMostRanks));
  const std::string algorithm = op.algorithm.empty() ? config_.algorithm : op.algorithm;
  if (!schedule::runs_in_shared_memory(algorithm)) refuse(fmt::format("in memory of GPUs the algorithm is direct, not {}", algorithm));
}

RankCommunicator::Execution RankCommunicator::execution_of(const Operation& op) const {
  const auto& row = schedule::algorithm_for(op.algorithm, op.collective());
  Execution execution{.algorithm = row.make, .problem = problem_of(op, row.make)};
  if (endpoint_->host_group() && row.make.lowering && row.make.lowering.covers(execution.problem))
    execution.path = &find(lowerings(), "lowering", row.key).make;
  return execution;
}

LoweringSite RankCommunicator::site_of(const Call& call, const Execution& execution) {
  return {endpoint_->transport(), scratch_, *endpoint_->host_group(), call.operation, execution.problem, call.sequence, tags_of(call)};
}

std::unique_ptr<Activity> RankCommunicator::activity_for(const Call& call) {
  const Operation& op = call.operation;
  if (!op.is_collective()) return message_for(op);
  const Execution execution = execution_of(op);
  if (execution.path) return execution.path->make(site_of(call, execution));
  const bool mean = op.reduces() && op.op == ReduceOp::mean;
  return std::make_unique<StepRunner>(endpoint_->transport(), scratch_, execution.algorithm.steps(execution.problem), op, tags_of(call),
                                      mean ? size() : 1);
}

std::unique_ptr<Activity> RankCommunicator::message_for(const Operation& op) {
  Transport& transport = endpoint_->transport();
  if (!op.buffer.on_gpu) return std::make_unique<Message>(transport, op);
  if (engine_of(engine()).gpu == Engine::Gpu::addresses) return std::make_unique<GpuMessage>(transport, op);
  return std::make_unique<StagedMessage>(transport, op);
}

schedule::Problem RankCommunicator::problem_of(const Operation& op, const schedule::Algorithm& algorithm) const {
  const schedule::Problem problem{.collective = op.collective(),
                                  .rank = rank(),
                                  .size = size(),
                                  .count = op.buffer.count,
                                  .root = op.root,
                                  .per_host = topology_.per_host};
  return algorithm.sized(problem, op.buffer.bytes(), endpoint_->host_group() && !op.buffer.on_gpu);
}

std::string RankCommunicator::configured(const Operation& op) const {
  if (config_.algorithm == "auto") return "auto";
  return std::string(schedule::configured_for(config_.algorithm, op.collective()));
}

std::string RankCommunicator::algorithm_of(const Operation& op) {
  std::string algorithm = op.algorithm.empty() ? configured(op) : op.algorithm;
  if (algorithm == "auto") return choose(op);
  if (topology_.scattered && find(schedule::algorithms(), "algorithm", algorithm).make.by_host)
    throw ConfigError(
        fmt::format("{}: {} needs the ranks of a host side by side, and as many on every host but the last; start them with "
                    "mpirun --map-by slot, or use another algorithm",
                    describe(op), algorithm));
  return algorithm;
}

std::int64_t RankCommunicator::bytes_sent(const Operation& operation) {
  Operation op = operation;
  op.algorithm = algorithm_of(op);
  const Execution execution = execution_of(op);
  return schedule::count(execution.algorithm.steps(execution.problem)).sent * size_of(op.buffer.dtype);
}

std::string RankCommunicator::choose(const Operation& op) {
  schedule::Problem problem{.collective = op.collective(), .size = size(), .root = op.root, .per_host = topology_.per_host};
  const bool shares_memory = endpoint_->host_group() && endpoint_->host_group()->size() == size();
  if (const std::string_view settled = schedule::settled(problem, shares_memory); !settled.empty()) return std::string(settled);
  if (!costs_) {
    const bool network = engine_of(engine()).spans_hosts;
    if (rank() == 0 && topology_.scattered)
      log::warning(
          "ranks of one host are no neighbours, so hosts send one another more than they must; start them with mpirun --map-by slot");
    costs_ = config_.repeatable ? built_in_costs(network, config_, topology_) : measure_costs(*this);
  }
  const std::int64_t bytes = schedule::rounded_length(op.buffer.bytes()), element = size_of(op.buffer.dtype);
  std::string& choice = choices_[{op.kind, bytes}];
  if (choice.empty()) {
    std::int64_t count = bytes / element;
    if (op.kind == Kind::all_to_all) count = (count + size() - 1) / size() * size();  // parts of equal size
    problem.count = count;
    choice = schedule::cheapest(*costs_, problem, element);
  }
  return choice;
}

std::unique_ptr<Communicator> RankCommunicator::split(int color, int key) {
  const std::vector<int> members = members_of(*this, color, key);
  auto endpoint = endpoint_->split(members, *this);
  const int place = endpoint->rank();
  return std::make_unique<RankCommunicator>(std::move(endpoint), config_, judge_.of_group(members, place));
}

}  // namespace paceline::comm

#include "paceline/comm/rank_communicator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "paceline/comm/executor.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/shared/direct.h"

namespace paceline::comm {
namespace {

using Kind = Operation::Kind;

constexpr std::int64_t kChunkBytes = 128 << 10, kMostChunks = 64;  // of what flows through a tree or chain
constexpr Tag kCollectiveTags = Tag{1} << 32;                      // a user's tags lie below

/// A send or a receive. Posted when it is first driven: only then the engine is this thread's alone.
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

RankCommunicator::RankCommunicator(std::unique_ptr<Endpoint> endpoint, const CommConfig& config)
    : endpoint_(std::move(endpoint)), config_(config), driver_(endpoint_->waiter()) {}

void RankCommunicator::run(const Operation& operation) {
  const Call call = prepare(operation);
  if (is_direct(call.operation)) {  // no allocation on the shortest way
    shared::Direct direct(*endpoint_->host_group(), call.operation, call.sequence);
    driver_.run(direct, call);
  } else {
    driver_.run(activity_for(call), call);
  }
}

Work RankCommunicator::start(const Operation& operation) {
  const Call call = prepare(operation);
  return driver_.start(activity_for(call), call);
}

Call RankCommunicator::prepare(const Operation& operation) {
  Call call{.operation = operation, .sequence = 0, .rank = rank()};
  Operation& op = call.operation;
  validate(op);
  if (op.deadline.count() == 0) op.deadline = Nanoseconds(static_cast<std::int64_t>(config_.deadline_s * 1e9));
  if (op.is_collective()) {
    if (op.algorithm.empty()) op.algorithm = config_.algorithm;
    if (op.algorithm == "auto") op.algorithm = choose(op);
    call.sequence = ++collectives_;
  } else {
    call.sequence = ++messages_;
  }
  return call;
}

void RankCommunicator::validate(const Operation& op) const {
  const auto refuse = [&](const std::string& why) { throw ConfigError(fmt::format("{}: {}", describe(op), why)); };
  const auto check_rank = [&](int rank, const char* what) {
    if (rank < 0 || rank >= size()) refuse(fmt::format("{} {} is not among the ranks 0 to {}", what, rank, size() - 1));
  };
  if (op.buffer.count < 0) refuse("the number of elements is negative");
  if (op.buffer.on_gpu || op.input.on_gpu) {
    const bool can = engine() == "local" && gpu::available() && op.is_collective() && endpoint_->host_group()->size() == size();
    if (!can)
      refuse(fmt::format("the {} engine {} memory of a GPU; use comm.engine=nccl", engine(),
                         engine() == "local" ? "carries only collectives on" : "does not carry"));
    if (size() > gpu::kMostRanks) refuse(fmt::format("at most {} ranks share one GPU", gpu::kMostRanks));
    const std::string algorithm = op.algorithm.empty() ? config_.algorithm : op.algorithm;
    if (algorithm != "auto" && algorithm != "direct") refuse(fmt::format("on one GPU the algorithm is direct, not {}", algorithm));
  }
  if (op.kind == Kind::broadcast || op.kind == Kind::reduce) check_rank(op.root, "root");
  if (!op.is_collective()) {
    check_rank(op.peer, "peer");
    if (op.peer == rank()) refuse("a rank does not send to itself");
    if (op.tag < 0) refuse("tags are not negative");
  }
  if (op.kind != Kind::all_to_all) return;
  if (op.input.count != op.buffer.count || op.input.dtype != op.buffer.dtype) refuse("input and output differ in size or type");
  if (op.buffer.count % size() != 0) refuse(fmt::format("{} elements can not be cut into {} equal parts", op.buffer.count, size()));
}

bool RankCommunicator::is_direct(const Operation& op) const {
  return op.is_collective() && op.algorithm == "direct" && endpoint_->host_group() && endpoint_->host_group()->size() == size();
}

std::unique_ptr<Activity> RankCommunicator::activity_for(const Call& call) {
  const Operation& op = call.operation;
  if (!op.is_collective()) return std::make_unique<Message>(endpoint_->transport(), op);
  if (is_direct(op)) return std::make_unique<shared::Direct>(*endpoint_->host_group(), op, call.sequence);
  const Topology topology = endpoint_->topology();
  const bool even = topology.hosts * topology.per_host == size() && topology.hosts > 1 && topology.per_host > 1;
  if (op.algorithm == "hierarchical" && op.kind == Kind::allreduce && endpoint_->host_group() && even) return two_level(call);
  return scheduled(call);
}

std::unique_ptr<Activity> RankCommunicator::scheduled(const Call& call) {
  const Operation& op = call.operation;
  const auto& row = schedule::algorithm_for(op.algorithm, op.collective());
  const Tag tag = kCollectiveTags + static_cast<Tag>(call.sequence);
  const bool mean = op.reduces() && op.op == ReduceOp::mean;
  return std::make_unique<Executor>(endpoint_->transport(), row.make.steps(problem(op)), op, tag, mean ? size() : 1);
}

schedule::Problem RankCommunicator::problem(const Operation& op) const {
  return {.collective = op.collective(),
          .rank = rank(),
          .size = size(),
          .count = op.buffer.count,
          .root = op.root,
          .per_host = endpoint_->topology().per_host,
          .chunks = std::clamp<std::int64_t>(op.buffer.bytes() / kChunkBytes, 1, kMostChunks)};
}

// Reduce-scatter inside the host, allreduce of each rank's slice across hosts, all-gather inside: what crosses the network crosses it once.
std::unique_ptr<Activity> RankCommunicator::two_level(const Call& call) {
  const Operation& op = call.operation;
  shared::Group& host = *endpoint_->host_group();
  const int per_host = host.size(), hosts = size() / per_host, local = host.rank();
  Operation inside = op;
  inside.kind = Kind::reduce_scatter;
  if (op.op == ReduceOp::mean) inside.op = ReduceOp::sum;  // the division comes once, at the end of the way across
  Operation across = op;
  across.buffer = op.buffer.slice(schedule::part(op.buffer.count, per_host, local));
  const schedule::Steps ring = schedule::algorithm_for("ring", schedule::Collective::allreduce)
                                   .make.steps({.rank = rank() / per_host, .size = hosts, .count = across.buffer.count});
  Operation outside = op;
  outside.kind = Kind::all_gather;
  const Tag tag = kCollectiveTags + static_cast<Tag>(call.sequence);
  std::vector<std::unique_ptr<Activity>> parts;
  parts.push_back(std::make_unique<shared::Direct>(host, inside, call.sequence, rank() - local));
  parts.push_back(
      std::make_unique<Executor>(endpoint_->transport(), ring, across, tag, op.op == ReduceOp::mean ? size() : 1, local, per_host));
  parts.push_back(std::make_unique<shared::Direct>(host, outside, call.sequence, rank() - local));
  return std::make_unique<Sequence>(std::move(parts));
}

std::string RankCommunicator::choose(const Operation& op) {
  if (endpoint_->host_group() && endpoint_->host_group()->size() == size()) return "direct";
  if (endpoint_->topology().per_host > 1 && op.kind == Kind::allreduce) return "hierarchical";
  if (op.kind == Kind::barrier) return "recursive_doubling";
  if (!costs_) {
    costs_.emplace();  // while measuring, nobody chooses by it
    costs_ = measure_costs(*this);
  }
  std::string& choice = choices_[{op.kind, op.buffer.bytes()}];
  if (choice.empty()) choice = cheapest(*costs_, problem(op), size_of(op.buffer.dtype));
  return choice;
}

// Everybody tells everybody his colour and key; who shares a colour forms a group.
std::unique_ptr<Communicator> RankCommunicator::split(int color, int key) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(2 * size()));
  all[static_cast<std::size_t>(2 * rank())] = color, all[static_cast<std::size_t>(2 * rank() + 1)] = key;
  run(all_gather(all));
  std::vector<int> members;
  for (int i = 0; i < size(); ++i)
    if (all[static_cast<std::size_t>(2 * i)] == color) members.push_back(i);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return all[static_cast<std::size_t>(2 * a + 1)] < all[static_cast<std::size_t>(2 * b + 1)]; });
  return std::make_unique<RankCommunicator>(endpoint_->split(members, *this), config_);
}

}  // namespace paceline::comm

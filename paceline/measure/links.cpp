#include "paceline/measure/links.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <thread>

#include "paceline/schedule/path.h"
#include "paceline/tensor/device.h"

namespace paceline::measure {
namespace {

constexpr std::int64_t kRingSizes[] = {1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr std::int64_t kLargeMessage = 4 << 20;
constexpr int kTag = 1;

perf::Quantity measured_value(double value) { return {value, perf::Source::measured}; }

/// A buffer of floats in the memory with the fastest collectives.
struct Values {
  Values(comm::Communicator& group, const c10::Device& device, std::int64_t bytes)
      : memory(device.is_cuda() ? comm::Memory() : group.allocate(bytes)),
        tensor(device.is_cuda() ? at::zeros({bytes / 4}, at::TensorOptions().device(device)) : at::from_blob(memory.get(), {bytes / 4})) {}

  comm::Memory memory;
  at::Tensor tensor;
};

enum class Calls { without_pause, as_in_steps };

double collective_seconds(const CallTimer& timer, comm::Communicator& group, schedule::Collective kind, const std::string& algorithm,
                          std::int64_t bytes, Calls calls = Calls::without_pause) {
  const Values values(group, timer.device, bytes);
  const comm::Options options{.op = comm::ReduceOp::sum, .root = 0, .algorithm = algorithm == "auto" ? "" : algorithm};
  const comm::Operation operation = [&] {
    switch (kind) {
      case schedule::Collective::reduce_scatter: return comm::reduce_scatter(values.tensor, options);
      case schedule::Collective::all_gather: return comm::all_gather(values.tensor, options);
      case schedule::Collective::broadcast: return comm::broadcast(values.tensor, options);
      default: return comm::allreduce(values.tensor, options);
    }
  }();
  // As in a real run, every rank has just written the data, so none of it is in its peers' caches.
  const auto write = [&] { at::Tensor(values.tensor).fill_(1); };
  const auto exchange = [&] { group.run(operation); };
  return calls == Calls::as_in_steps ? timer.after_computing(write, exchange) : timer.behind(write, exchange);
}

/// How many times the bytes of one message pass between the first two ranks while another message travels the other way. The other ranks
/// wait.
double duplex_factor(const CallTimer& timer, comm::Communicator& group) {
  const Values out(group, timer.device, kLargeMessage), in(group, timer.device, kLargeMessage);
  const int rank = group.rank();
  const double one = timer.of([&] {
    if (rank == 0) group.run(comm::send(out.tensor, 1, kTag));
    if (rank == 1) group.run(comm::receive(in.tensor, 0, kTag));
    group.run(comm::barrier());
  });
  const double both = timer.of([&] {
    if (rank < 2) {
      const comm::Work coming = group.start(comm::receive(in.tensor, 1 - rank, kTag));
      group.run(comm::send(out.tensor, 1 - rank, kTag));
      coming.wait();
    }
    group.run(comm::barrier());
  });
  const double meeting = timer.of([&] { group.run(comm::barrier()); });
  const auto message = [&](double with_meeting) { return std::max(with_meeting - meeting, with_meeting / 100); };
  return 2 * message(one) / message(both);
}

std::vector<std::string> algorithms_for(schedule::Collective kind) {
  std::vector<std::string> names = {"auto"};
  if (kind != schedule::Collective::allreduce) return names;
  for (const auto& row : schedule::algorithms())
    if (row.make.offer(kind)) names.emplace_back(row.key);
  return names;
}

}  // namespace

MessageCosts fit_ring(int ranks, const std::map<std::int64_t, double>& seconds) {
  struct Row {
    double rounds, moved, time;
  };
  std::vector<Row> rows;
  const schedule::Algorithm& ring = schedule::algorithm_for("ring", schedule::Collective::all_gather).make;
  for (const auto& [bytes, time] : seconds) {
    schedule::Problem problem{.collective = schedule::Collective::all_gather, .size = ranks, .count = bytes / 4};
    problem.chunks = ring.chunks(problem, bytes);
    const schedule::Path path = schedule::critical_path(ring, problem);
    rows.push_back({static_cast<double>(path.rounds), static_cast<double>(path.moved) * 4, time});
  }
  const Row &shortest = rows.front(), &longest = rows.back();
  const double rounds_of_longest = longest.rounds * shortest.time / shortest.rounds;
  const double per_byte = std::max(longest.time - rounds_of_longest, longest.time / 10) / longest.moved;
  double product = 0, square = 0;  // least squares of relative errors, so that every size has the same weight
  for (const Row& row : rows) {
    product += row.rounds / row.time * (1 - row.moved * per_byte / row.time);
    square += row.rounds / row.time * row.rounds / row.time;
  }
  const double latency = product > 0 ? product / square : shortest.time / shortest.rounds;
  return {.latency_s = latency, .bytes_per_s = 1 / per_byte};
}

perf::Link measure_link(const CallTimer& timer, comm::Communicator& group, const std::string& name) {
  std::map<std::int64_t, double> seconds;
  for (const std::int64_t bytes : kRingSizes) {
    timer.rank.tell(fmt::format("link {}: {} KiB", name, bytes >> 10));
    seconds[bytes] = collective_seconds(timer, group, schedule::Collective::all_gather, "ring", bytes);
  }
  const MessageCosts costs = fit_ring(group.size(), seconds);
  perf::Link link{.name = name, .latency = measured_value(costs.latency_s), .bandwidth = measured_value(costs.bytes_per_s)};
  if (group.size() > 2) {  // compares one round of all messages with as many rounds of one message
    const double at_once = collective_seconds(timer, group, schedule::Collective::all_gather, "direct", 1 << 10);
    const double gap = std::min((at_once - costs.latency_s) / (group.size() - 2), costs.latency_s);
    if (gap > 0) link.gap = measured_value(gap);
  }
  timer.rank.tell(fmt::format("link {}: both directions", name));
  link.duplex = measured_value(std::round(std::clamp(duplex_factor(timer, group), 1.0, 2.0) * 1000) / 1000);
  return link;
}

std::vector<perf::CollectiveTimes> measure_collectives(const CallTimer& timer, std::int64_t largest) {
  std::vector<perf::CollectiveTimes> all;
  comm::Communicator& comm = timer.rank.comm;
  const Calls calls = comm.topology().hosts > 1 ? Calls::as_in_steps : Calls::without_pause;
  for (const schedule::Collective kind : {schedule::Collective::allreduce, schedule::Collective::reduce_scatter,
                                          schedule::Collective::all_gather, schedule::Collective::broadcast})
    for (const std::string& algorithm : algorithms_for(kind)) {
      timer.rank.tell(fmt::format("{} by {}", schedule::name_of(kind), algorithm));
      perf::CollectiveTimes& times = all.emplace_back(perf::CollectiveTimes{.collective = std::string(schedule::name_of(kind)),
                                                                            .algorithm = algorithm,
                                                                            .ranks = comm.size(),
                                                                            .per_host = comm.topology().per_host,
                                                                            .points = {},
                                                                            .source = perf::Source::measured});
      for (std::int64_t bytes = 1 << 10; bytes <= largest; bytes *= 8)
        times.points.push_back({static_cast<double>(bytes), collective_seconds(timer, comm, kind, algorithm, bytes, calls)});
    }
  return all;
}

double measure_slowdown(const CallTimer& timer) {
  constexpr std::int64_t kSide = 192, kBytes = 4 << 20;
  timer.rank.tell("products during an allreduce");
  const auto options = at::TensorOptions().device(timer.device);
  const at::Tensor a = at::randn({kSide, kSide}, options), b = at::randn({kSide, kSide}, options);
  at::Tensor c = at::empty({kSide, kSide}, options);
  const double alone = timer.of([&] { at::mm_out(c, a, b); });
  comm::Communicator& comm = timer.rank.comm;
  const Values values(comm, timer.device, kBytes);
  const comm::Operation operation = comm::allreduce(values.tensor);
  const double exchange = timer.of([&] { comm.run(operation); });
  // All ranks make the same number of exchanges, and multiply until their own are done.
  const std::int64_t exchanges = timer.rank.agreed(static_cast<std::int64_t>(std::clamp(4 * timer.seconds / exchange, 3.0, 1000.0)));
  timer.rank.meet();
  std::atomic<bool> over = false;
  std::exception_ptr problem;
  std::thread lane([&] {
    try {
      for (std::int64_t i = 0; i < exchanges; ++i) comm.run(operation);
    } catch (...) {
      problem = std::current_exception();
    }
    over = true;
  });
  std::int64_t products = 0;
  const Nanoseconds began = timer.clock.now();
  while (!over || products == 0) at::mm_out(c, a, b), tensor::synchronize(timer.device), ++products;
  const double beside = seconds(timer.clock.now() - began) / static_cast<double>(products);
  lane.join();
  if (problem) std::rethrow_exception(problem);
  return std::clamp(timer.rank.mean(beside) / alone, 1.0, 100.0);
}

}  // namespace paceline::measure

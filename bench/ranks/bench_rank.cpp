// One rank of `paceline bench allreduce` and its kin: bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES. With the local engine this
// process plays all ranks as threads; otherwise a launcher started one process per rank. Also: bench_rank roofline RANKS COLLECTIVE -
// SIZES.
#include <cstring>
#include <functional>
#include <future>

#include "paceline/base/affinity.h"
#include "paceline/base/program.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/reduce.h"
#include "timing.h"

namespace {

using namespace paceline;
using namespace paceline::comm;

Operation operation_for(const std::string& collective, const Buffer& buffer, const std::string& algorithm) {
  const Options options{.op = ReduceOp::sum, .root = 0, .algorithm = algorithm, .deadline = {}};
  if (collective == "allreduce") return allreduce(buffer, options);
  if (collective == "reduce_scatter") return reduce_scatter(buffer, options);
  if (collective == "all_gather") return all_gather(buffer, options);
  if (collective == "broadcast") return broadcast(buffer, options);
  throw ConfigError("unknown collective '" + collective + "'");
}

template <class Once>
void time_collective(Communicator& communicator, std::int64_t bytes, Once once) {
  const auto share = [&](std::int32_t number) { return communicator.run(broadcast(Buffer(&number, 1))), number; };
  bench::time_collective(
      communicator.rank(), bytes, [&] { communicator.run(barrier()); }, share, once);
}

void measure(Communicator& communicator, const std::string& collective, const std::string& algorithm,
             const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t bytes : sizes) {
    const std::int64_t count = bytes / 4;
    const Memory memory = communicator.allocate(bytes);
    auto* values = static_cast<float*>(memory.get());
    std::fill(values, values + count, 0.0f);
    const Operation operation = operation_for(collective, Buffer(values, count), algorithm);
    time_collective(communicator, bytes, [&] { communicator.run(operation); });
  }
}

/// A thread for each; what one of them throws is thrown here.
void play(int threads, const std::function<void(int)>& part) {
  std::vector<std::future<void>> parts;
  parts.reserve(static_cast<std::size_t>(threads));
  for (int index = 0; index < threads; ++index)
    parts.push_back(std::async(std::launch::async, [&part, index, threads] {
      const OwnCores cores(index, threads);
      part(index);
    }));
  for (auto& each : parts) each.get();
}

void measure_threads(int ranks, const std::string& collective, const std::string& algorithm, const std::vector<std::int64_t>& sizes) {
  auto group = local_group(ranks);
  play(ranks, [&](int rank) { measure(*group[static_cast<std::size_t>(rank)], collective, algorithm, sizes); });
}

/// The floor of a collective through memory: as many threads as there are ranks or cores, each moving its share of all buffers once, with
/// nobody to wait for. What is read and where it is written is the collective's own.
void measure_roofline(int ranks, const std::string& collective, const std::vector<std::int64_t>& sizes) {
  const int workers = std::min(ranks, usable_cores());
  const bool reduces = collective == "allreduce" || collective == "reduce_scatter";
  auto group = local_group(workers);
  for (const std::int64_t bytes : sizes) {
    std::vector<Memory> buffers;
    for (int rank = 0; rank < ranks; ++rank) {
      buffers.push_back(group[0]->allocate(bytes));
      std::memset(buffers.back().get(), 0, static_cast<std::size_t>(bytes));
    }
    play(workers, [&](int worker) {
      const schedule::Range range = schedule::part(bytes / 4, workers, worker);
      const int owner = collective == "broadcast" ? 0 : worker;  // of what is gathered or broadcast, or of the part that is to be reduced
      std::vector<const void*> in;
      std::vector<void*> out;
      for (int rank = 0; rank < ranks; ++rank) {
        float* values = static_cast<float*>(buffers[static_cast<std::size_t>(rank)].get()) + range.begin;
        if (reduces || rank == owner) in.push_back(values);
        if (collective == "allreduce" || (rank == owner) == reduces) out.push_back(values);
      }
      const auto move = [&] {
        if (reduces) return combine_all(DType::f32, ReduceOp::sum, in, out, range.size(), 1);
        for (void* to : out) std::memcpy(to, in.front(), static_cast<std::size_t>(range.size()) * sizeof(float));
      };
      time_collective(*group[static_cast<std::size_t>(worker)], bytes, move);
    });
  }
}

void run(const std::string& engine, int ranks, const std::string& collective, const std::string& algorithm,
         const std::vector<std::int64_t>& sizes) {
  if (engine == "roofline") return measure_roofline(ranks, collective, sizes);
  if (engine == "local") return measure_threads(ranks, collective, algorithm, sizes);
  CommConfig config;
  config.engine = engine;
  const World world = discover();
  const auto [part, parts] = world.part_of_cores();
  const OwnCores cores(part, parts);
  measure(*connect(config, world), collective, algorithm, sizes);
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return std::fprintf(stderr, "bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES\n"), 2;
  return paceline::run_program([&] { return run(words[1], std::atoi(words[2]), words[3], words[4], bench::parse_sizes(words[5])), 0; });
}

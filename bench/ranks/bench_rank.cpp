// One rank of `paceline bench allreduce` and its kin: bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES. With the local engine this
// process plays all ranks as threads; otherwise a launcher started one process a rank. Also: bench_rank roofline RANKS - - SIZES.
#include <cstring>
#include <thread>

#include "paceline/base/affinity.h"
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

void measure(Communicator& communicator, const std::string& collective, const std::string& algorithm,
             const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t bytes : sizes) {
    const std::int64_t count = bytes / 4;
    const Memory memory = communicator.allocate(bytes);
    auto* values = static_cast<float*>(memory.get());
    std::fill(values, values + count, 0.0f);
    const Operation operation = operation_for(collective, Buffer(values, count), algorithm);
    bench::time_collective(
        communicator.rank(), bytes, [&] { communicator.run(barrier()); }, [&] { communicator.run(operation); });
  }
}

void measure_threads(int ranks, const std::string& collective, const std::string& algorithm, const std::vector<std::int64_t>& sizes) {
  auto group = local_group(ranks);
  std::vector<std::thread> threads;
  threads.reserve(group.size());
  for (auto& communicator : group)
    threads.emplace_back([&, c = communicator.get()] {
      keep_to_cores(c->rank(), ranks);
      measure(*c, collective, algorithm, sizes);
    });
  for (std::thread& thread : threads) thread.join();
}

/// The floor of an allreduce through memory: as many threads as there are ranks or cores, each adding its share of all buffers and writing
/// it to all, with nobody to wait for.
void measure_roofline(int ranks, const std::vector<std::int64_t>& sizes) {
  const int workers = std::min<int>(ranks, static_cast<int>(std::thread::hardware_concurrency()));
  auto group = local_group(workers);
  for (const std::int64_t bytes : sizes) {
    std::vector<Memory> buffers;
    for (int rank = 0; rank < ranks; ++rank) {
      buffers.push_back(group[0]->allocate(bytes));
      std::memset(buffers.back().get(), 0, static_cast<std::size_t>(bytes));
    }
    std::vector<std::thread> threads;
    threads.reserve(group.size());
    for (int worker = 0; worker < workers; ++worker)
      threads.emplace_back([&, worker] {
        const schedule::Range range = schedule::part(bytes / 4, workers, worker);
        std::vector<const void*> in;
        std::vector<void*> out;
        for (const Memory& buffer : buffers) {
          out.push_back(static_cast<float*>(buffer.get()) + range.begin);
          in.push_back(out.back());
        }
        keep_to_cores(worker, workers);
        auto& communicator = *group[static_cast<std::size_t>(worker)];
        bench::time_collective(
            worker, bytes, [&] { communicator.run(barrier()); }, [&] { combine_all(DType::f32, ReduceOp::sum, in, out, range.size(), 1); });
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return std::fprintf(stderr, "bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES\n"), 2;
  const std::string engine = words[1], collective = words[3], algorithm = words[4];
  const int ranks = std::atoi(words[2]);
  const auto sizes = bench::parse_sizes(words[5]);
  try {
    if (engine == "roofline") {
      measure_roofline(ranks, sizes);
    } else if (engine == "local") {
      measure_threads(ranks, collective, algorithm, sizes);
    } else {
      CommConfig config;
      config.engine = engine;
      const World world = discover();
      keep_to_cores(world.local_rank, world.local_size);
      measure(*connect(config, world), collective, algorithm, sizes);
    }
    return 0;
  } catch (const std::exception& problem) {
    return std::fprintf(stderr, "%s\n", problem.what()), 1;
  }
}

// One rank of `paceline bench allreduce` and its kin: bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES DEVICE. With the local engine this
// process plays all ranks as threads; otherwise a launcher started one process per rank. Also: bench_rank roofline RANKS COLLECTIVE -
// SIZES DEVICE, and bench_rank copy 1 - - SIZES cuda.
#include <cstring>
#include <functional>
#include <future>

#include "paceline/base/affinity.h"
#include "paceline/base/run_program.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/reduce.h"
#include "time_collective.h"

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

/// Memory of a GPU with a stream, zeroed.
struct OnGpu {
  explicit OnGpu(std::int64_t bytes) : memory(gpu::share(bytes, card)) {}
  Buffer floats(std::int64_t bytes) const { return {memory.get(), bytes / 4, DType::f32, queue.stream()}; }
  void finish() const { gpu::synchronize(queue.stream()); }

  gpu::Card card{};
  std::shared_ptr<void> memory;
  gpu::Queue queue;
};

template <class Once, class Finish>
void time_collective(Communicator& communicator, std::int64_t bytes, Once once, Finish finish) {
  const auto share = [&](std::int32_t number) { return communicator.run(broadcast(Buffer(&number, 1))), number; };
  bench::time_collective(
      communicator.rank(), bytes, [&] { communicator.run(barrier()); }, share, once, finish);
}
template <class Once>
void time_collective(Communicator& communicator, std::int64_t bytes, Once once) {
  time_collective(communicator, bytes, once, [] {});
}

void measure_on_gpu(Communicator& communicator, const std::string& collective, const std::string& algorithm,
                    const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t bytes : sizes) {
    const OnGpu memory(bytes);
    const Operation operation = operation_for(collective, memory.floats(bytes), algorithm);
    time_collective(
        communicator, bytes, [&] { communicator.run(operation); }, [&] { memory.finish(); });
    communicator.run(barrier());  // nobody frees what another still reads
  }
}

void measure(Communicator& communicator, const std::string& collective, const std::string& algorithm,
             const std::vector<std::int64_t>& sizes, bool on_gpu) {
  if (on_gpu) return measure_on_gpu(communicator, collective, algorithm, sizes);
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

void measure_threads(int ranks, const std::string& collective, const std::string& algorithm, const std::vector<std::int64_t>& sizes,
                     bool on_gpu) {
  auto group = local_group(ranks);
  play(ranks, [&](int rank) { measure(*group[static_cast<std::size_t>(rank)], collective, algorithm, sizes, on_gpu); });
}

/// What `move` needs on one stream: the floor of whatever moves as many bytes.
template <class Move>
void measure_moves(const std::vector<std::int64_t>& sizes, int buffers, Move move) {
  auto alone = local_group(1);
  for (const std::int64_t bytes : sizes) {
    std::vector<std::unique_ptr<OnGpu>> memory;
    for (int i = 0; i < buffers; ++i) memory.push_back(std::make_unique<OnGpu>(bytes));
    time_collective(
        *alone[0], bytes, [&] { move(memory, bytes, memory[0]->queue.stream()); }, [&] { memory[0]->finish(); });
  }
}

void measure_gpu_copy(const std::vector<std::int64_t>& sizes) {
  measure_moves(sizes, 2, [](const auto& memory, std::int64_t bytes, void* stream) {
    gpu::copy(memory[1]->memory.get(), memory[0]->memory.get(), bytes, stream);
  });
}

/// Every buffer is read and written as often as the collective has to, in one kernel or one copy after the other.
void measure_gpu_roofline(int ranks, const std::string& collective, const std::vector<std::int64_t>& sizes) {
  measure_moves(sizes, ranks, [&](const auto& memory, std::int64_t bytes, void* stream) {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const auto& each : memory) in.push_back(each->memory.get()), out.push_back(each->memory.get());
    if (collective == "allreduce") return gpu::combine_all(DType::f32, ReduceOp::sum, in, out, bytes / 4, 1, stream);
    if (collective == "reduce_scatter")
      return gpu::combine_all(DType::f32, ReduceOp::sum, in, std::span(out).first(1), bytes / 4, 1, stream);
    for (std::size_t i = 1; i < out.size(); ++i) gpu::copy(out[i], in[0], bytes, stream);
  });
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
         const std::vector<std::int64_t>& sizes, bool on_gpu) {
  if (engine == "copy") return measure_gpu_copy(sizes);
  if (engine == "roofline") return on_gpu ? measure_gpu_roofline(ranks, collective, sizes) : measure_roofline(ranks, collective, sizes);
  if (engine == "local") return measure_threads(ranks, collective, algorithm, sizes, on_gpu);
  CommConfig config;
  config.engine = engine;
  const World world = discover();
  const auto [part, parts] = world.part_of_cores();
  const OwnCores cores(part, parts);
  measure(*connect(config, world), collective, algorithm, sizes, on_gpu);
}

}  // namespace

int main(int count, char** words) {
  if (count != 7) return std::fprintf(stderr, "bench_rank ENGINE RANKS COLLECTIVE ALGORITHM SIZES DEVICE\n"), 2;
  const bool on_gpu = std::string(words[6]) != "cpu";
  return paceline::run_program(
      [&] { return run(words[1], std::atoi(words[2]), words[3], words[4], bench::parse_sizes(words[5]), on_gpu), 0; });
}

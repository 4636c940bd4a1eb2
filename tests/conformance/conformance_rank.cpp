// One process of a conformance run, started by conformance_test, mpirun or a launcher: conformance_rank ENGINE [PER_HOST [THREADS
// [gpu]]], where each of THREADS threads is a rank; gpu: all of it in memory of a GPU.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "collectives.h"
#include "on_gpu.h"
#include "paceline/comm/engine.h"

namespace {

using namespace paceline::comm;

int play_rank(const CommConfig& config, const World& world, bool on_gpu) {
  try {
    auto communicator = connect(config, world);
    if (on_gpu) communicator = std::make_unique<ByWayOfGpu>(std::move(communicator));
    const std::string wrong = conform_all(*communicator);
    if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
    return wrong.empty() ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
}

}  // namespace

int main(int count, char** words) {
  CommConfig config;
  if (count > 1) config.engine = words[1];
  if (count > 2) config.per_host = std::stoi(words[2]);
  const int ranks = count > 3 ? std::stoi(words[3]) : 1;
  const bool on_gpu = count > 4;
  const World process = discover();
  std::vector<int> codes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int i = 1; i < ranks; ++i)
    threads.emplace_back([&, i] { codes[static_cast<std::size_t>(i)] = play_rank(config, process.of_thread(i, ranks), on_gpu); });
  codes[0] = play_rank(config, process.of_thread(0, ranks), on_gpu);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

// A rank that calls collectives until something goes wrong: fault_rank ENGINE COLLECTIVE ALGORITHM DEADLINE_S [PER_HOST]. Says "ready",
// its rank and its process after the first; leaves with code 7 and the error's rank, operation and sequence on standard output when a peer
// fails.
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "paceline/comm/engine.h"

int main(int count, char** words) {
  using namespace paceline;
  using namespace paceline::comm;
  if (count < 5) return 2;
  int rank = -1;
  try {
    CommConfig config;
    config.engine = words[1];
    config.algorithm = words[3];
    config.deadline_s = std::stod(words[4]);
    if (count > 5) config.per_host = std::stoi(words[5]);
    const std::string collective = words[2];
    const auto comm = connect(config);
    rank = comm->rank();
    std::vector<float> values(60000), input(60000);
    for (int i = 0;; ++i) {
      if (collective == "allreduce") comm->run(allreduce(values));
      if (collective == "reduce_scatter") comm->run(reduce_scatter(values));
      if (collective == "all_gather") comm->run(all_gather(values));
      if (collective == "all_to_all") comm->run(all_to_all(input, values));
      if (collective == "broadcast") comm->run(broadcast(values));
      if (collective == "reduce") comm->run(reduce(values));
      comm->run(barrier());
      if (i == 0) std::printf("ready %d %d\n", rank, ::getpid()), std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const PeerError& error) {
    std::printf("rank %d: peer %d %s %lld %s\n", rank, error.rank(), error.operation().c_str(), static_cast<long long>(error.step()),
                error.what());
    return 7;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

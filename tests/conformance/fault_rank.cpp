// A rank that calls collectives until something goes wrong: fault_rank ENGINE COLLECTIVE ALGORITHM DEADLINE_S [PER_HOST [AWAY BUSY
// [LATE]]]. Says "ready", its rank and its process after the first; leaves with code 7 and the error's rank, operation and sequence on
// standard output when a peer fails. Rank AWAY calls only the first. Rank BUSY starts the second, or with LATE does not yet, and computes
// until its standard input ends.
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "paceline/comm/engine.h"

namespace {

using namespace paceline;
using namespace paceline::comm;

Operation operation(const std::string& collective, std::vector<float>& values, std::vector<float>& input) {
  if (collective == "allreduce") return allreduce(values);
  if (collective == "reduce_scatter") return reduce_scatter(values);
  if (collective == "all_gather") return all_gather(values);
  if (collective == "all_to_all") return all_to_all(input, values);
  if (collective == "broadcast") return broadcast(values);
  if (collective == "reduce") return reduce(values);
  throw ConfigError("no such collective: " + collective);
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return 2;
  int rank = -1;
  try {
    CommConfig config;
    config.engine = words[1];
    config.algorithm = words[3];
    config.deadline_s = std::stod(words[4]);
    if (count > 5) config.per_host = std::stoi(words[5]);
    const int away = count > 7 ? std::stoi(words[6]) : -1, busy = count > 7 ? std::stoi(words[7]) : -1;
    const auto comm = connect(config);
    rank = comm->rank();
    std::vector<float> values(60000), input(60000);
    const Operation tried = operation(words[2], values, input);
    for (int i = 0;; ++i) {
      if (i == 1 && rank == away) ::pause();
      if (i == 1 && rank == busy) {
        const bool late = count > 8;
        const Work work = late ? Work() : comm->start(tried);
        while (std::getchar() != EOF) {
        }
        late ? comm->run(tried) : work.wait();
      } else {
        comm->run(tried);
      }
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

// One rank of the training conformance for engines whose ranks are processes: training_rank ENGINE, under paceline run or mpirun.
#include <cstdio>
#include <exception>

#include "paceline/comm/engine.h"
#include "paceline/schedule/schedule.h"
#include "training.h"

int main(int argc, char** argv) {
  using namespace paceline;
  try {
    comm::CommConfig config;
    config.engine = argc > 1 ? argv[1] : "auto";
    const auto comm = comm::connect(config);
    int failures = 0, tried = 0;
    std::vector<std::string> algorithms = {"auto"};
    for (const auto& row : schedule::algorithms()) algorithms.emplace_back(row.key);
    for (const std::string& algorithm : algorithms)
      for (const auto& wanted : conformance::few_training_cases()) {
        const double difference = conformance::difference_from_one_worker(*comm, wanted, algorithm);
        ++tried;
        if (difference <= 1e-5) continue;
        ++failures;
        std::printf("rank %d: %s by %s differs by %g\n", comm->rank(), wanted.name.c_str(), algorithm.c_str(), difference);
      }
    if (comm->rank() == 0)
      std::printf("%d of %d cases agree on %s, %d ranks\n", tried - failures, tried, comm->engine().c_str(), comm->size());
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
}

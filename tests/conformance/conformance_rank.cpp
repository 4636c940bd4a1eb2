// One rank of a conformance run, started by conformance_test, mpirun or a launcher: conformance_rank ENGINE [PER_HOST]
#include <cstdio>

#include "collectives.h"
#include "paceline/comm/engine.h"

int main(int count, char** words) {
  using namespace paceline::comm;
  try {
    CommConfig config;
    if (count > 1) config.engine = words[1];
    if (count > 2) config.per_host = std::stoi(words[2]);
    const auto communicator = connect(config);
    const std::string wrong = conform_all(*communicator);
    if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
    return wrong.empty() ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
}

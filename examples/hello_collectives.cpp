// Ranks say hello: paceline run -np 4 -- build/bin/example_hello_collectives   (or under mpirun, torchrun, srun; or alone)
#include <cstdio>

#include "paceline/comm.h"

int hello() {
  using namespace paceline::comm;
  const auto comm = connect();  // finds its rank and the others by itself

  std::vector<float> sum(1000, static_cast<float>(comm->rank()));
  const Work work = comm->start(allreduce(sum));  // goes on while we do something else …

  std::vector<std::int32_t> ranks(static_cast<std::size_t>(comm->size()));
  ranks[static_cast<std::size_t>(comm->rank())] = comm->rank();
  work.wait();  // … until we need it
  comm->run(all_gather(ranks));

  std::printf("rank %d of %d over %s: the sum is %g, the last rank %d\n", comm->rank(), comm->size(), comm->engine().c_str(), sum[0],
              ranks.back());
  return 0;
}

int main() { return paceline::run_program(hello); }  // an error is one line and an exit code

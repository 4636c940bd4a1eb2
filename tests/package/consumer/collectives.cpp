// Ranks that add up, without LibTorch.
#include <paceline/paceline.h>

#include <cstdio>
#include <vector>

int main() {
  return paceline::run_program([] {
    const auto comm = paceline::comm::connect();
    std::vector<double> values(1000, comm->rank() + 1.0);
    comm->run(paceline::comm::allreduce(values));
    std::printf("rank %d of %d: %g\n", comm->rank(), comm->size(), values.back());
    return 0;
  });
}

// The peer of `paceline bench allreduce`: MPI's own collectives, in place on ordinary memory. mpi_rank COLLECTIVE SIZES
#include <mpi.h>

#include "bench/ranks/time_collective.h"

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string collective = words[1];
  for (const std::int64_t bytes : paceline::bench::parse_sizes(words[2])) {
    const int elements = static_cast<int>(bytes / 4), part = elements / ranks;
    std::vector<float> values(static_cast<std::size_t>(elements)), parts(static_cast<std::size_t>(part));
    const auto once = [&] {
      if (collective == "allreduce") {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      } else if (collective == "reduce_scatter") {
        MPI_Reduce_scatter_block(values.data(), parts.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      } else if (collective == "all_gather") {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
      } else {
        MPI_Bcast(values.data(), elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
      }
    };
    const auto share = [](int number) { return MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD), number; };
    paceline::bench::time_collective(
        rank, bytes, [] { MPI_Barrier(MPI_COMM_WORLD); }, share, once);
  }
  return MPI_Finalize();
}

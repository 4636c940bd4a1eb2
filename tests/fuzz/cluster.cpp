// Cluster files: what is read is written as a file that reads back to the same cluster.
#include "paceline/perf/cluster.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perf::Cluster cluster;
  bool taken = false;
  fuzz::parse([&] {
    cluster = perf::read_cluster(std::string(fuzz::text_of(data, size)), "cluster.toml");
    taken = true;
  });
  if (taken) fuzz::require(perf::read_cluster(perf::to_toml(cluster), "the written file") == cluster, "a written cluster file reads back");
  return 0;
}

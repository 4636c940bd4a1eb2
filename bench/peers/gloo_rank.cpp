// The peer of `paceline bench allreduce`: Gloo's own collectives over TCP on the loopback interface, as PyTorch uses them; started with
// RANK and WORLD_SIZE. gloo_rank COLLECTIVE SIZES STORE_FOLDER
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/ranks/time_collective.h"

int main(int, char** words) {
  const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
  const std::string collective = words[1];
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(words[3]);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  for (const std::int64_t bytes : paceline::bench::parse_sizes(words[2])) {
    const auto elements = static_cast<std::size_t>(bytes / 4), part = elements / static_cast<std::size_t>(ranks);
    std::vector<float> values(elements);
    const std::vector<int> parts(static_cast<std::size_t>(ranks), static_cast<int>(part));
    std::uint32_t tag = 0;
    gloo::ReduceScatterHalvingDoubling<float> scatter(context, {values.data()}, static_cast<int>(part * static_cast<std::size_t>(ranks)),
                                                      parts);
    const auto broadcast = [&](auto* memory, std::size_t count) {
      gloo::BroadcastOptions options(context);
      options.setOutput(memory, count);
      options.setRoot(0);
      options.setTag(++tag);
      gloo::broadcast(options);
    };
    const auto once = [&] {
      if (collective == "allreduce") {
        gloo::AllreduceOptions options(context);
        options.setOutput(values.data(), elements);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        options.setTag(++tag);
        gloo::allreduce(options);
      } else if (collective == "reduce_scatter") {
        scatter.run();
      } else if (collective == "all_gather") {
        gloo::AllgatherOptions options(context);
        options.setInput(values.data() + static_cast<std::size_t>(rank) * part, part);
        options.setOutput(values.data(), part * static_cast<std::size_t>(ranks));
        options.setTag(++tag);
        gloo::allgather(options);
      } else {
        broadcast(values.data(), elements);
      }
    };
    const auto barrier = [&] {
      gloo::BarrierOptions options(context);
      options.setTag(++tag);
      gloo::barrier(options);
    };
    const auto share = [&](int number) { return broadcast(&number, 1), number; };
    paceline::bench::time_collective(rank, bytes, barrier, share, once);
  }
}

#include "paceline/data_parallel/meeting.h"

#include "paceline/data_parallel/exchange_memory.h"

namespace paceline::data_parallel {

std::int64_t Meeting::average(const at::Tensor& flat) const {
  if (comm().size() == 1 || flat.numel() == 0) return 0;
  const comm::Buffer buffer = flat;
  comm().run(comm::allreduce(buffer, {.op = comm::ReduceOp::mean}));
  return allreduce_bytes(buffer.bytes(), comm().size());
}

void LocalSgdOptions::describe(Section& section) {
  section.field("period", period, "steps between two meetings").at_least(1);
  section.field("post_local_epoch", post_local_epoch, "meet at every step before this epoch").at_least(0);
}

void ElasticOptions::describe(Section& section) {
  section.field("period", period, "steps between two meetings").at_least(1);
  section.field("elasticity", elasticity, "how strongly the workers and the centre attract each other; 0: 0.9 / workers").at_least(0);
}

void DiLoCoOptions::describe(Section& section) {
  section.field("period", period, "steps between two meetings").at_least(1);
  section.field("outer_rate", outer_rate, "learning rate of the outer step, which the workers make together").above(0);
  section.field("outer_momentum", outer_momentum, "momentum of the outer step").at_least(0);
}

}  // namespace paceline::data_parallel

#include "paceline/data_parallel/exchange.h"

#include <ATen/ATen.h>

#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/compressed.h"
#include "paceline/data_parallel/residual_carryover.h"

namespace paceline::data_parallel {
namespace {

class Plain final : public Exchange {
 public:
  explicit Plain(const step::Context& context) : gradients_(context.module.arena().gradients()), comm_(context.comm) {}

  void average(const Bucket& bucket) override {
    comm_.run(comm::allreduce(buffer_of(gradients_, bucket.begin, bucket.end), {.op = comm::ReduceOp::mean}));
    bytes_sent_ += allreduce_bytes(bucket.count() * 4, comm_.size());
    bytes_plain_ = bytes_sent_;
  }

 private:
  at::Tensor gradients_;
  comm::Communicator& comm_;
};

/// One worker where several would compress.
class Alone final : public Exchange {
 public:
  explicit Alone(const step::Context& context) : carryover_(context) {}

  void average(const Bucket& bucket) override { carryover_.apply(bucket.begin, bucket.end); }
  std::vector<step::NamedTensor> save() override { return carryover_.save(); }
  void load(std::span<const step::NamedTensor> state) override { carryover_.load(state); }

 private:
  ResidualCarryover carryover_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const step::Context& context) {
  if (context.compression == "none") return std::make_unique<Plain>(context);
  if (context.workers() == 1) return std::make_unique<Alone>(context);
  return make_compressed(context);
}

}  // namespace paceline::data_parallel

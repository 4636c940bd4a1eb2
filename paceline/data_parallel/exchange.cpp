#include "paceline/data_parallel/exchange.h"

#include <ATen/ATen.h>

#include <deque>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/compress/feedback.h"
#include "paceline/data_parallel/compressed.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/data_parallel/rounded.h"
#include "paceline/step/loss_scale.h"

namespace paceline::data_parallel {
namespace {

class Plain final : public Exchange {
 public:
  explicit Plain(const ExchangeSetup& setup)
      : gradients_(setup.arena.gradients()),
        comm_(setup.comm),
        options_{.op = setup.shares ? comm::ReduceOp::sum : comm::ReduceOp::mean, .algorithm = setup.algorithm} {}
  /// After an error, the gradients may be freed.
  ~Plain() override {
    for (const Begun& begun : begun_) begun.work.abandon();
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  void average(const Bucket& bucket) override {
    comm_.run(comm::allreduce(comm::Buffer(gradients_).slice({bucket.begin, bucket.end}), options_));
    bytes_sent_ += allreduce_bytes(bucket.count() * gradients_.element_size(), comm_.size());
    bytes_plain_ = bytes_sent_;
  }

  void begin_scatter(const Bucket& bucket) override { begun_.push_back({bucket.index, comm_.start(scatter_of(bucket))}); }

  void scatter(const Bucket& bucket) override {
    if (begun_.empty()) {
      comm_.run(scatter_of(bucket));
    } else {
      ensure(begun_.front().bucket == bucket.index, "scatters end in the order in which they were begun");
      begun_.front().work.wait();
      begun_.pop_front();
    }
    bytes_sent_ += allreduce_bytes(bucket.count() * gradients_.element_size(), comm_.size()) / 2;
    bytes_plain_ = bytes_sent_;
  }

 private:
  struct Begun {
    std::size_t bucket = 0;
    comm::Work work;
  };

  comm::Operation scatter_of(const Bucket& bucket) const {
    return comm::reduce_scatter(comm::Buffer(gradients_).slice({bucket.begin, bucket.end}), options_);
  }

  at::Tensor gradients_;
  comm::Communicator& comm_;
  comm::Options options_;
  std::deque<Begun> begun_;
};

/// For one worker, if the compressor would carry the optimizer's momentum: applies the momentum and compresses nothing.
class MomentumAlone final : public Exchange {
 public:
  explicit MomentumAlone(const ExchangeSetup& setup, const compress::Compressor& compressor)
      : gradients_(setup.arena.gradients()),
        feedback_(compressor, setup.compress, setup.momentum, 1, setup.arena.length()),
        velocity_(at::zeros(gradients_.sizes(), at::TensorOptions().dtype(gradients_.dtype()))) {}

  void average(const Bucket& bucket) override {
    at::Tensor gradient = gradients_.narrow(0, bucket.begin, bucket.count());
    const at::Tensor on_host = gradient.cpu();
    at::Tensor said = at::zeros_like(on_host);
    feedback_.add(on_host.data_ptr<float>(),
                  {.residual = said.data_ptr<float>(), .velocity = velocity_.data_ptr<float>() + bucket.begin, .count = bucket.count()});
    gradient.copy_(said);
  }

 private:
  at::Tensor gradients_;
  compress::Feedback feedback_;
  at::Tensor velocity_;  // [length], in host memory
};

/// For one worker, if several would compress.
class Alone final : public Exchange {
 public:
  explicit Alone(const step::Context& context) : carryover_(context) {}

  void average(const Bucket& bucket) override { carryover_.apply(bucket.begin, bucket.end); }
  std::vector<step::NamedTensor> save() override { return carryover_.save(); }
  void load(std::span<const step::NamedTensor> state) override { carryover_.load(state); }

 private:
  ResidualCarryover carryover_;
};

/// Ranks of the tensor axis hold copies of some weights, and must update them identically. What a code keeps of a gradient depends on all
/// others in its bucket, and these differ; rounding does not.
void check_mesh(const step::Context& context) {
  if (context.mesh.tensor().size() == 1 || context.workers() == 1 || context.compression == "none") return;
  if (find(compress::compressors(), "compression", context.compression).make.rounds_to) return;
  throw ConfigError(
      fmt::format("comm.compression={} would send different parts of the gradients that the ranks of parallel.tensor={} have alike; use "
                  "parallel.tensor=1, or comm.compression=bf16, fp16 or none",
                  context.compression, context.mesh.tensor().size()));
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const ExchangeSetup& setup) {
  const bool plain = setup.compression == "none" || setup.compression.empty();
  if (plain && setup.bf16 && setup.comm.size() > 1) return make_rounded(setup);
  if (plain) return std::make_unique<Plain>(setup);
  if (setup.comm.size() > 1) return make_compressed(setup);
  const auto& row = find(compress::compressors(), "compression", setup.compression);
  if (!row.make.momentum_correction) return std::make_unique<Plain>(setup);
  check_compressible(setup);
  return std::make_unique<MomentumAlone>(setup, row.make);
}

std::unique_ptr<Exchange> make_exchange(const step::Context& context, bool bf16) {
  check_mesh(context);
  if (context.compression != "none" && context.workers() == 1) return std::make_unique<Alone>(context);
  return make_exchange({.arena = context.model.arena(),
                        .comm = context.comm(),
                        .compression = context.compression,
                        .compress = context.compress,
                        .momentum = context.optim.momentum,
                        .seed = context.seed,
                        .bf16 = bf16,
                        .shares = step::LossScale::needed(context.model.arena())});
}

}  // namespace paceline::data_parallel

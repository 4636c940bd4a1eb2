#include "paceline/data_parallel/rounded.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::data_parallel {
namespace {

constexpr std::int64_t kPiece = 1 << 14;  // elements

/// The algorithm configured for allreduces, if it supports this collective; otherwise the communicator's own choice.
std::string offered(const std::string& algorithm, schedule::Collective collective) {
  if (algorithm.empty() || algorithm == "auto") return algorithm;
  return find(schedule::algorithms(), "algorithm", algorithm).make.offer(collective) ? algorithm : std::string();
}

class Rounded final : public Exchange {
 public:
  explicit Rounded(const ExchangeSetup& setup)
      : gradients_(setup.arena.gradients()),
        comm_(setup.comm),
        to_all_{.algorithm = offered(setup.algorithm, schedule::Collective::all_to_all)},
        gather_{.algorithm = offered(setup.algorithm, schedule::Collective::all_gather)} {}

  void prepare(const std::vector<Bucket>& buckets) override {
    std::int64_t most = 0;
    for (const Bucket& bucket : buckets) most = std::max(most, room(bucket));
    if (sum_.defined() && most <= sum_.numel()) return;
    const auto allocate = allocate_from(comm_);
    sent_ = allocate(most * comm_.size(), gradients_.options().dtype(at::kBFloat16));
    arrived_ = allocate(most * comm_.size(), gradients_.options().dtype(at::kBFloat16));
    sum_ = at::empty({most}, gradients_.options().dtype(at::kFloat));
    memory_ = tensor::TravellingBytes(static_cast<std::int64_t>(sent_.nbytes() + arrived_.nbytes() + sum_.nbytes()));
  }

  void average(const Bucket& bucket) override {
    const at::Tensor mean = mean_of_own_part(bucket);
    const at::Tensor all = sent_.narrow(0, 0, bucket.count());
    const schedule::Range own = part(bucket, comm_.rank());
    all.narrow(0, own.begin, own.size()).copy_(mean);
    comm_.run(comm::all_gather(all, gather_));
    gradients_.narrow(0, bucket.begin, bucket.count()).copy_(all);
    count_bytes(bucket, 2);
  }

  void scatter(const Bucket& bucket) override {
    const at::Tensor mean = mean_of_own_part(bucket);
    const schedule::Range own = part(bucket, comm_.rank());
    gradients_.narrow(0, bucket.begin + own.begin, own.size()).copy_(mean);
    count_bytes(bucket, 1);
  }

 private:
  schedule::Range part(const Bucket& bucket, int rank) const { return schedule::part(bucket.count(), comm_.size(), rank); }
  std::int64_t room(const Bucket& bucket) const { return (bucket.count() + comm_.size() - 1) / comm_.size(); }  // of the largest part

  at::Tensor mean_of_own_part(const Bucket& bucket) {
    const int workers = comm_.size();
    const std::int64_t room = this->room(bucket), own = part(bucket, comm_.rank()).size();
    for (int rank = 0; rank < workers; ++rank) {
      const schedule::Range theirs = part(bucket, rank);
      sent_.narrow(0, rank * room, theirs.size()).copy_(gradients_.narrow(0, bucket.begin + theirs.begin, theirs.size()));
    }
    comm_.run(comm::all_to_all(sent_.narrow(0, 0, workers * room), arrived_.narrow(0, 0, workers * room), to_all_));
    at::Tensor sum = sum_.narrow(0, 0, own);
    sum.copy_(arrived_.narrow(0, 0, own));
    // LibTorch's sum of two types on a CPU has a copy of the summand in fp32: of a piece, it stays small.
    const std::int64_t piece = sum.is_cpu() ? kPiece : std::max<std::int64_t>(own, 1);
    for (int rank = 1; rank < workers; ++rank)
      for (std::int64_t begin = 0; begin < own; begin += piece) {
        const std::int64_t count = std::min(piece, own - begin);
        sum.narrow(0, begin, count).add_(arrived_.narrow(0, rank * room + begin, count));
      }
    return sum.div_(workers);
  }

  /// The bytes of the all-to-all alone, or together with the all-gather.
  void count_bytes(const Bucket& bucket, int halves) {
    bytes_sent_ += halves * allreduce_bytes(bucket.count() * 2, comm_.size()) / 2;
    bytes_plain_ += halves * allreduce_bytes(bucket.count() * static_cast<std::int64_t>(gradients_.element_size()), comm_.size()) / 2;
  }

  at::Tensor gradients_;
  comm::Communicator& comm_;
  comm::Options to_all_, gather_;
  at::Tensor sent_, arrived_;  // [workers × the largest part] in bf16
  at::Tensor sum_;             // [the largest part]
  tensor::TravellingBytes memory_;
};

}  // namespace

std::unique_ptr<Exchange> make_rounded(const ExchangeSetup& setup) { return std::make_unique<Rounded>(setup); }

}  // namespace paceline::data_parallel

#include "paceline/data_parallel/compressed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/compress/device_code.h"
#include "paceline/data_parallel/arena_rows.h"
#include "paceline/data_parallel/compressed_base.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::data_parallel {
namespace {

using compress::RangeLayout;

/// Codes of which each worker decodes one slice, averages it and encodes the mean: the traffic pattern of an allreduce, with fewer bytes.
class Dense final : public Compressed {
 public:
  Dense(const ExchangeSetup& setup, const compress::Compressor& compressor, std::unique_ptr<compress::Coder> coder)
      : Compressed(setup, compressor),
        coder_(std::move(coder)),
        second_residual_(tensor::allocate_pages(arena_.length(), residual_.options())) {
    kept_.add(static_cast<std::int64_t>(second_residual_.nbytes()));
  }

  void prepare(const std::vector<Bucket>& buckets) override {
    Compressed::prepare(buckets);
    const c10::DeviceGuard guard(values_.device());
    cuts_.clear();
    std::int64_t most = 0;  // the most bytes of any bucket's codes
    for (const Bucket& bucket : buckets) {
      BucketSlices& cut = cuts_.emplace_back();
      for (int r = 0; r < comm_.size(); ++r) {
        const schedule::Range range = schedule::part(bucket.count(), comm_.size(), r);
        const RangeLayout layout = layouts_[bucket.index].slice(range.begin, range.end);
        Slice& slice = cut.slices.emplace_back(layout, bucket.begin + range.begin, coder_->bound(layout));
        if (values_.is_cuda()) slice.on_gpu = compressor_.on_gpu(setup_.compress, layout);
        cut.room = std::max(cut.room, slice.bytes);
      }
      most = std::max(most, cut.room * std::ssize(cut.slices));
    }
    codes_ = at::zeros({most}, residual_.options().dtype(at::kByte)), arrived_ = at::zeros_like(codes_);
    memory_ = tensor::TravellingBytes(2 * most);
  }

  std::vector<step::NamedTensor> save() override {
    auto state = Compressed::save();
    std::ranges::move(rows(kSecondResidual, second_residual_), std::back_inserter(state));
    return state;
  }

  // Each worker has the residual of its own slices of the mean, and zeros elsewhere. The other workers have the other slices of the same
  // sum.
  void load(std::span<const step::NamedTensor> state) override {
    Compressed::load(state);
    if (is_optional(state, kSecondResidual)) return;
    if (saved_arena_rows(arena_, state, kSecondResidual) == comm_.size())
      return take_arena_row(comm_, arena_, state, kSecondResidual, second_residual_);
    const at::Tensor all = at::empty_like(second_residual_);
    sum_arena_rows(arena_, state, kSecondResidual, all);
    second_residual_.zero_();
    for (const BucketSlices& cut : cuts_) {
      const Slice& mine = cut.slices[static_cast<std::size_t>(comm_.rank())];
      second_residual_.narrow(0, mine.begin, mine.layout.length).copy_(all.narrow(0, mine.begin, mine.layout.length));
    }
  }

 private:
  /// The slice that one worker decodes and encodes again.
  struct Slice {
    Slice(RangeLayout what, std::int64_t where, std::int64_t size) : layout(std::move(what)), begin(where), bytes(size) {}
    RangeLayout layout;
    std::int64_t begin, bytes;                     // in the arena; size of its code
    std::unique_ptr<compress::DeviceCode> on_gpu;  // if the values are on a GPU
  };
  struct BucketSlices {
    std::vector<Slice> slices;  // by worker
    std::int64_t room = 0;      // bytes of the longest code
  };

  void average(const Bucket& bucket) override {
    const auto& slices = cuts_[bucket.index].slices;
    const std::int64_t room = cuts_[bucket.index].room, size = room * std::ssize(slices);
    const at::Tensor codes = codes_.narrow(0, 0, size), arrived = arrived_.narrow(0, 0, size);
    const auto code_at = [room](const at::Tensor& all, std::size_t r) {
      return static_cast<std::byte*>(all.data_ptr()) + static_cast<std::int64_t>(r) * room;
    };

    float* values = accumulate(bucket);
    for (std::size_t r = 0; r < slices.size(); ++r)
      encode(slices[r], values + (slices[r].begin - bucket.begin), context(bucket, 0), code_at(codes, r));
    forget_sent(bucket);
    comm_.run(comm::all_to_all(codes, arrived));

    // Averages this worker's slice over all workers' codes, adds what earlier codes of the mean left out, and encodes the result.
    const auto rank = static_cast<std::size_t>(comm_.rank());
    const Slice& mine = slices[rank];
    const at::Tensor mean = second_residual_.narrow(0, mine.begin, mine.layout.length);
    if (!feedback_.keeps()) fill_with_zeros(mean);
    for (std::size_t r = 0; r < slices.size(); ++r)
      decode_add(mine, code_at(arrived, r), 1.0F / static_cast<float>(slices.size()), mean.data_ptr<float>());
    encode(mine, mean.data_ptr<float>(), context(bucket, 1), code_at(codes, rank));
    comm_.run(comm::all_gather(codes));

    fill_with_zeros(values_.narrow(0, bucket.begin, bucket.count()));
    for (std::size_t r = 0; r < slices.size(); ++r) decode_add(slices[r], code_at(codes, r), 1, gradients() + slices[r].begin);
    count_bytes(bucket, 2 * room * (comm_.size() - 1));
  }

  void encode(const Slice& slice, float* values, const compress::CodingContext& context, std::byte* code) {
    const std::int64_t bytes =
        slice.on_gpu ? slice.on_gpu->encode(values, context, code, stream()) : coder_->encode(slice.layout, values, context, code);
    ensure(bytes == slice.bytes, "the codes of a dense coder are as long as it says");
  }
  void decode_add(const Slice& slice, const std::byte* code, float weight, float* sum) const {
    const std::span<const std::byte> bytes(code, static_cast<std::size_t>(slice.bytes));
    if (slice.on_gpu) slice.on_gpu->decode_add(bytes, weight, sum, stream());
    else coder_->decode_add(slice.layout, bytes, weight, sum);
  }

  std::unique_ptr<compress::Coder> coder_;
  std::vector<BucketSlices> cuts_;  // by bucket
  at::Tensor second_residual_;      // [length]
  at::Tensor codes_, arrived_;      // bytes: [workers × room], for the largest bucket
  tensor::TravellingBytes memory_;
};

/// Codes that every worker receives in full.
class Sparse final : public Compressed {
 public:
  Sparse(const ExchangeSetup& setup, const compress::Compressor& compressor, std::unique_ptr<compress::Coder> coder)
      : Compressed(setup, compressor), coder_(std::move(coder)) {}

  void prepare(const std::vector<Bucket>& buckets) override {
    Compressed::prepare(buckets);
    const c10::DeviceGuard guard(values_.device());
    on_gpu_.clear();
    std::int64_t most = 0;  // the most bytes of any bucket's code
    for (const RangeLayout& layout : layouts_) {
      most = std::max(most, coder_->bound(layout));
      if (values_.is_cuda()) on_gpu_.push_back(compressor_.on_gpu(setup_.compress, layout));
    }
    code_ = at::empty({most}, residual_.options().dtype(at::kByte));
    memory_ = tensor::TravellingBytes(most + codes_.numel());
  }

 private:
  void average(const Bucket& bucket) override {
    const int workers = comm_.size(), rank = comm_.rank();
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(workers));
    sizes[static_cast<std::size_t>(rank)] = encode(bucket.index, accumulate(bucket), context(bucket, 0), bytes_of(code_));
    forget_sent(bucket);
    comm_.run(comm::all_gather(sizes));

    const std::int64_t room = *std::max_element(sizes.begin(), sizes.end()), size = sizes[static_cast<std::size_t>(rank)];
    const at::Tensor codes = room_for_codes(room * workers);
    codes.narrow(0, room * rank, size).copy_(code_.narrow(0, 0, size));
    comm_.run(comm::all_gather(codes));

    fill_with_zeros(values_.narrow(0, bucket.begin, bucket.count()));
    for (int r = 0; r < workers; ++r)
      decode_add(bucket.index, {bytes_of(codes) + room * r, static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)])},
                 1.0F / static_cast<float>(workers), gradients() + bucket.begin);
    count_bytes(bucket, (room + 8) * (workers - 1));
  }

  std::int64_t encode(std::size_t bucket, float* values, const compress::CodingContext& context, std::byte* code) {
    if (values_.is_cuda()) return on_gpu_[bucket]->encode(values, context, code, stream());
    return coder_->encode(layouts_[bucket], values, context, code);
  }
  void decode_add(std::size_t bucket, std::span<const std::byte> code, float weight, float* sum) const {
    if (values_.is_cuda()) on_gpu_[bucket]->decode_add(code, weight, sum, stream());
    else coder_->decode_add(layouts_[bucket], code, weight, sum);
  }

  at::Tensor room_for_codes(std::int64_t bytes) {
    if (codes_.numel() < bytes) {
      memory_.add(bytes - codes_.numel());
      codes_ = at::empty({bytes}, code_.options());
    }
    return codes_.narrow(0, 0, bytes);
  }
  static std::byte* bytes_of(const at::Tensor& codes) { return static_cast<std::byte*>(codes.data_ptr()); }

  std::unique_ptr<compress::Coder> coder_;
  std::vector<std::unique_ptr<compress::DeviceCode>> on_gpu_;  // by bucket, if the values are on a GPU
  at::Tensor code_, codes_ = at::empty({0}, at::kByte);        // this worker's; all workers'
  tensor::TravellingBytes memory_;
};

/// Numbers that can be averaged directly.
class Averaged final : public Compressed {
 public:
  Averaged(const ExchangeSetup& setup, const compress::Compressor& compressor)
      : Compressed(setup, compressor), make_(values_.is_cuda() ? compressor.linear_on_gpu : compressor.linear) {}

  void prepare(const std::vector<Bucket>& buckets) override {
    Compressed::prepare(buckets);
    std::vector<std::int64_t> begins;
    begins.reserve(buckets.size());
    for (const Bucket& bucket : buckets) begins.push_back(bucket.begin);
    if (begins == begins_) return;  // unchanged buckets keep their state
    begins_ = begins;
    const c10::DeviceGuard guard(values_.device());
    parts_.clear();
    for (const RangeLayout& layout : layouts_) parts_.push_back(make_(setup_.compress, layout, setup_.seed));
    memory_ = tensor::TravellingBytes(0), counted_.assign(parts_.size(), false);
  }

  std::vector<step::NamedTensor> save() override {
    auto state = Compressed::save();
    std::vector<at::Tensor> all = {at::empty({0})};
    for (const auto& part : parts_) all.push_back(at::tensor(part->state(stream())));
    state.push_back({factors(), at::cat(all)});
    return state;
  }

  void load(std::span<const step::NamedTensor> state) override {
    Compressed::load(state);
    // One worker compresses nothing, and the factors of another mesh are those of other matrices: these begin anew.
    const at::Tensor found = step::saved_or_none(state, factors());
    if (!found.defined()) return;
    const at::Tensor saved = found.cpu().contiguous();
    std::int64_t length = 0;
    for (const auto& part : parts_) length += std::ssize(part->state(stream()));
    if (length != saved.numel())
      throw ConfigError(
          fmt::format("'{}' of the checkpoint has {} values, expected {}; resume with the same compress.rank and strategy.bucket_mb",
                      factors(), saved.numel(), length));
    const float* from = saved.data_ptr<float>();
    for (const auto& part : parts_) {
      const std::size_t size = part->state(stream()).size();
      part->set_state({from, size}, stream());
      from += size;
    }
  }

 private:
  void average(const Bucket& bucket) override {
    compress::Linear& linear = *parts_[bucket.index];
    float* values = accumulate(bucket);
    std::int64_t sent = 0;
    for (int i = 0; i < linear.rounds(); ++i) {
      const compress::Round round = linear.round(i, values, stream());
      const comm::DType type = round.type == compress::Round::Type::f32   ? comm::DType::f32
                               : round.type == compress::Round::Type::f16 ? comm::DType::f16
                                                                          : comm::DType::bf16;
      comm::Buffer buffer(round.data, round.count, type);
      if (values_.is_cuda()) buffer.on_gpu = true, buffer.stream = stream();
      comm_.run(comm::allreduce(buffer, {.op = comm::ReduceOp::mean, .algorithm = setup_.algorithm}));
      sent += allreduce_bytes(buffer.bytes(), comm_.size());
      if (!counted_[bucket.index]) memory_.add(buffer.bytes());
    }
    counted_[bucket.index] = true;
    linear.finish(values, gradients() + bucket.begin, stream());
    forget_sent(bucket);
    count_bytes(bucket, sent);
  }

  /// Their name in a checkpoint, with the first and the last matrix: each stage of a pipeline has its own.
  std::string factors() const {
    const std::vector<tensor::Entry>& entries = arena_.entries();
    return entries.empty() ? "compress.factors" : fmt::format("compress.factors.{}-{}", entries.front().name, entries.back().name);
  }

  decltype(compress::Compressor::linear) make_;
  std::vector<std::unique_ptr<compress::Linear>> parts_;  // by bucket
  std::vector<std::int64_t> begins_;
  std::vector<bool> counted_;  // by bucket: whether `memory_` has its numbers, which are known once they are sent
  tensor::TravellingBytes memory_;
};

/// fp16 and bf16 on a GPU, which supports these types.
class RoundedOnGpu final : public Compressed {
 public:
  RoundedOnGpu(const ExchangeSetup& setup, const compress::Compressor& compressor)
      : Compressed(setup, compressor), type_(compressor.rounds_to == compress::Round::Type::f16 ? at::kHalf : at::kBFloat16) {}

 private:
  void average(const Bucket& bucket) override {
    accumulate(bucket);
    const at::Tensor values = residual_.narrow(0, bucket.begin, bucket.count());
    const at::Tensor sent = values.to(type_);
    const tensor::TravellingBytes memory(static_cast<std::int64_t>(sent.nbytes()));
    values.sub_(sent);  // before the mean takes its place
    comm_.run(comm::allreduce(sent, {.op = comm::ReduceOp::mean, .algorithm = setup_.algorithm}));
    values_.narrow(0, bucket.begin, bucket.count()).copy_(sent);
    forget_sent(bucket);
    count_bytes(bucket, allreduce_bytes(static_cast<std::int64_t>(sent.nbytes()), comm_.size()));
  }

  at::ScalarType type_;
};

}  // namespace

void check_compressible(const ExchangeSetup& setup) {
  const at::Tensor& gradients = setup.arena.gradients();
  if (gradients.scalar_type() != at::kFloat)
    throw ConfigError(fmt::format(
        "compression '{}' needs float gradients, but these are {}; call module->to(torch::kFloat) first, or use compression 'none'",
        setup.compression, c10::toString(gradients.scalar_type())));
  if (gradients.is_cuda() && !find(compress::compressors(), "compression", setup.compression).make.has_kernels())
    throw ConfigError(fmt::format("compression '{}' has no kernels for a GPU; use another one, or train.device=cpu", setup.compression));
}

std::unique_ptr<Exchange> make_compressed(const ExchangeSetup& setup) {
  const auto& row = find(compress::compressors(), "compression", setup.compression);
  check_compressible(setup);
  if (row.make.rounds_to && setup.arena.gradients().is_cuda()) return std::make_unique<RoundedOnGpu>(setup, row.make);
  if (row.make.linear) return std::make_unique<Averaged>(setup, row.make);
  auto coder = row.make.coder(setup.compress);
  if (coder->averaging() == compress::Coder::Averaging::dense) return std::make_unique<Dense>(setup, row.make, std::move(coder));
  return std::make_unique<Sparse>(setup, row.make, std::move(coder));
}

}  // namespace paceline::data_parallel

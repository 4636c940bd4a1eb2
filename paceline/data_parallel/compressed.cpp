#include "paceline/data_parallel/compressed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/compress/feedback.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/data_parallel/residual_carryover.h"

namespace paceline::data_parallel {
namespace {

using compress::RangeLayout;

/// What lies in a bucket, for compressors: matrices as matrices.
RangeLayout layout_of(const tensor::Arena& arena, const Bucket& bucket) {
  RangeLayout layout;
  layout.length = bucket.count();
  for (std::size_t i = bucket.first_entry; i < bucket.last_entry; ++i) {
    const tensor::Entry& entry = arena.entries()[i];
    const std::int64_t rows = entry.shape.size() >= 2 ? entry.shape[0] : 1;
    layout.parts.push_back({entry.offset - bucket.begin, entry.count, rows, entry.count / std::max<std::int64_t>(rows, 1)});
  }
  return layout;
}

/// What all compressed exchanges share: the residual, into which a gradient is added and from which it is encoded.
class Compressed : public Exchange {
 public:
  Compressed(const ExchangeSetup& setup, const compress::Compressor& compressor)
      : setup_(setup),
        arena_(setup.arena),
        feedback_(compressor, setup.compress, setup.momentum, setup.comm.size(), arena_.length()),
        comm_(setup.comm),
        gradients_(arena_.gradients().data_ptr<float>()),
        residual_(tensor::allocate_pages(arena_.length(), arena_.gradients().options())) {
    if (feedback_.has_velocity()) momentum_ = tensor::allocate_pages(arena_.length(), arena_.gradients().options());
  }

  void prepare(const std::vector<Bucket>& buckets) override {
    layouts_.clear();
    for (const Bucket& bucket : buckets) layouts_.push_back(layout_of(arena_, bucket));
  }

  void begin_step(const step::Point& point) override {
    moment_ = {.seed = setup_.seed, .rank = comm_.rank(), .step = point.step, .epoch = point.epoch};
  }

  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = {own_row(comm_, kResidual, residual_)};
    if (momentum_.defined()) state.push_back(own_row(comm_, kVelocity, momentum_));
    return state;
  }

  void load(std::span<const step::NamedTensor> state) override {
    if (!is_optional(state, kResidual)) take_row(comm_, state, kResidual, residual_);
    if (momentum_.defined()) take_row(comm_, state, kVelocity, momentum_);
  }

 protected:
  /// Whether `name` is absent because nobody compressed before: one worker, which has at most a residual that it has not applied yet, or
  /// several that sent gradients as they are. This exchange's state then begins as in a new run.
  static bool is_optional(std::span<const step::NamedTensor> state, const std::string& name) {
    const auto residual = step::saved_shape(state, kResidual);
    return !step::saved_shape(state, name) && (!residual || residual->at(0) == 1);
  }

  /// The bucket's residual with the gradient added: what is to be sent now.
  float* accumulate(const Bucket& bucket) {
    const compress::Feedback::Kept kept = kept_of(bucket);
    feedback_.add(gradients_ + bucket.begin, kept);
    return kept.residual;
  }

  /// Removes what was sent from the residual.
  void forget_sent(const Bucket& bucket) { feedback_.said(kept_of(bucket)); }

  compress::Moment moment(const Bucket& bucket, std::uint64_t stage) const {
    compress::Moment made = moment_;
    made.place = static_cast<std::uint64_t>(bucket.begin) * 2 + stage;
    return made;
  }

  void count_bytes(const Bucket& bucket, std::int64_t sent) {
    bytes_sent_ += sent;
    bytes_plain_ += allreduce_bytes(bucket.count() * 4, comm_.size());
  }

  const ExchangeSetup setup_;
  tensor::Arena& arena_;
  compress::Feedback feedback_;
  comm::Communicator& comm_;
  float* gradients_;
  at::Tensor residual_, momentum_;    // [length]
  std::vector<RangeLayout> layouts_;  // by bucket
  compress::Moment moment_;

 private:
  compress::Feedback::Kept kept_of(const Bucket& bucket) {
    return {.residual = residual_.data_ptr<float>() + bucket.begin,
            .velocity = momentum_.defined() ? momentum_.data_ptr<float>() + bucket.begin : nullptr,
            .count = bucket.count()};
  }
};

/// Codes of which each worker decodes and encodes again a slice: traffic as that of an allreduce, in fewer bytes.
class Dense final : public Compressed {
 public:
  Dense(const ExchangeSetup& setup, const compress::Compressor& compressor, std::unique_ptr<compress::Coder> coder)
      : Compressed(setup, compressor),
        coder_(std::move(coder)),
        second_residual_(tensor::allocate_pages(arena_.length(), arena_.gradients().options())) {}

  void prepare(const std::vector<Bucket>& buckets) override {
    Compressed::prepare(buckets);
    cuts_.clear();
    for (const Bucket& bucket : buckets) {
      BucketSlices& cut = cuts_.emplace_back();
      for (int r = 0; r < comm_.size(); ++r) {
        const schedule::Range range = schedule::part(bucket.count(), comm_.size(), r);
        const RangeLayout slice = layouts_[bucket.index].slice(range.begin, range.end);
        cut.slices.push_back({slice, bucket.begin + range.begin, coder_->bound(slice)});
        cut.room = std::max(cut.room, cut.slices.back().bytes);
      }
    }
  }

  void average(const Bucket& bucket) override {
    const auto& cut = cuts_[bucket.index];
    const auto& slices = cut.slices;
    const std::int64_t room = cut.room;
    codes_.resize(slices.size() * static_cast<std::size_t>(room)), arrived_.resize(codes_.size());
    const auto code_at = [room](std::vector<std::byte>& codes, std::size_t r, const Slice& slice) {
      return std::span(codes).subspan(r * static_cast<std::size_t>(room), static_cast<std::size_t>(slice.bytes));
    };
    const auto encode = [&](std::size_t r, float* values, std::uint64_t stage) {
      const std::int64_t bytes = coder_->encode(slices[r].layout, values, moment(bucket, stage), code_at(codes_, r, slices[r]).data());
      ensure(bytes == slices[r].bytes, "the codes of a dense coder are as long as it says");
    };

    float* values = accumulate(bucket);
    for (std::size_t r = 0; r < slices.size(); ++r) encode(r, values + (slices[r].begin - bucket.begin), 0);
    forget_sent(bucket);
    comm_.run(comm::all_to_all(codes_, arrived_));

    // The mean of all workers' codes of this worker's slice, and what could not be said of it before.
    const auto rank = static_cast<std::size_t>(comm_.rank());
    const Slice& mine = slices[rank];
    float* mean = second_residual_.data_ptr<float>() + mine.begin;
    if (!feedback_.keeps()) std::memset(mean, 0, static_cast<std::size_t>(mine.layout.length) * sizeof(float));
    for (std::size_t r = 0; r < slices.size(); ++r)
      coder_->decode_add(mine.layout, code_at(arrived_, r, mine), 1.0F / static_cast<float>(slices.size()), mean);
    encode(rank, mean, 1);
    comm_.run(comm::all_gather(codes_));

    std::memset(gradients_ + bucket.begin, 0, static_cast<std::size_t>(bucket.count()) * sizeof(float));
    for (std::size_t r = 0; r < slices.size(); ++r)
      coder_->decode_add(slices[r].layout, code_at(codes_, r, slices[r]), 1, gradients_ + slices[r].begin);
    count_bytes(bucket, 2 * room * (comm_.size() - 1));
  }

  std::vector<step::NamedTensor> save() override {
    auto state = Compressed::save();
    state.push_back(own_row(comm_, kSecondResidual, second_residual_));
    return state;
  }

  // Each worker has the residual of its slices of the mean, and zeros elsewhere. Other workers have other slices of the same sum.
  void load(std::span<const step::NamedTensor> state) override {
    Compressed::load(state);
    if (is_optional(state, kSecondResidual)) return;
    const auto shape = step::saved_shape(state, kSecondResidual);
    if (shape && shape->at(0) == comm_.size()) return take_row(comm_, state, kSecondResidual, second_residual_);
    const at::Tensor all = sum_of_rows(state, kSecondResidual, second_residual_);
    second_residual_.zero_();
    for (const BucketSlices& cut : cuts_) {
      const Slice& mine = cut.slices[static_cast<std::size_t>(comm_.rank())];
      second_residual_.narrow(0, mine.begin, mine.layout.length).copy_(all.narrow(0, mine.begin, mine.layout.length));
    }
  }

 private:
  /// What one worker decodes and encodes again.
  struct Slice {
    RangeLayout layout;
    std::int64_t begin = 0, bytes = 0;  // in the arena; of its code
  };
  struct BucketSlices {
    std::vector<Slice> slices;  // by worker
    std::int64_t room = 0;      // bytes of the longest code
  };

  std::unique_ptr<compress::Coder> coder_;
  std::vector<BucketSlices> cuts_;  // by bucket
  at::Tensor second_residual_;      // [length]
  std::vector<std::byte> codes_, arrived_;
};

/// Codes that everybody gets whole.
class Sparse final : public Compressed {
 public:
  Sparse(const ExchangeSetup& setup, const compress::Compressor& compressor, std::unique_ptr<compress::Coder> coder)
      : Compressed(setup, compressor), coder_(std::move(coder)) {}

  void average(const Bucket& bucket) override {
    const int workers = comm_.size(), rank = comm_.rank();
    const RangeLayout& layout = layouts_[bucket.index];
    code_.resize(static_cast<std::size_t>(coder_->bound(layout)));
    const std::int64_t size = coder_->encode(layout, accumulate(bucket), moment(bucket, 0), code_.data());
    forget_sent(bucket);

    std::vector<std::int64_t> sizes(static_cast<std::size_t>(workers));
    sizes[static_cast<std::size_t>(rank)] = size;
    comm_.run(comm::all_gather(sizes));
    const std::int64_t room = *std::max_element(sizes.begin(), sizes.end());
    codes_.resize(static_cast<std::size_t>(room * workers));
    std::memcpy(codes_.data() + room * rank, code_.data(), static_cast<std::size_t>(size));
    comm_.run(comm::all_gather(codes_));

    float* gradient = gradients_ + bucket.begin;
    std::memset(gradient, 0, static_cast<std::size_t>(bucket.count()) * sizeof(float));
    for (int r = 0; r < workers; ++r) {
      const auto code =
          std::span(codes_).subspan(static_cast<std::size_t>(room * r), static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]));
      coder_->decode_add(layout, code, 1.0F / static_cast<float>(workers), gradient);
    }
    count_bytes(bucket, (room + 8) * (workers - 1));
  }

 private:
  std::unique_ptr<compress::Coder> coder_;
  std::vector<std::byte> code_, codes_;
};

/// Numbers that can be averaged as they are.
class Averaged final : public Compressed {
 public:
  Averaged(const ExchangeSetup& setup, const compress::Compressor& compressor) : Compressed(setup, compressor), compressor_(compressor) {}

  void prepare(const std::vector<Bucket>& buckets) override {
    Compressed::prepare(buckets);
    std::vector<std::int64_t> begins;
    begins.reserve(buckets.size());
    for (const Bucket& bucket : buckets) begins.push_back(bucket.begin);
    if (begins == begins_) return;  // the same buckets: what they remember stays
    begins_ = begins;
    parts_.clear();
    for (const RangeLayout& layout : layouts_) parts_.push_back(compressor_.linear(setup_.compress, layout, setup_.seed));
  }

  void average(const Bucket& bucket) override {
    compress::Linear& linear = *parts_[bucket.index];
    float* values = accumulate(bucket);
    std::int64_t sent = 0;
    for (int i = 0; i < linear.rounds(); ++i) {
      const compress::Round round = linear.round(i, values);
      const comm::DType type = round.type == compress::Round::Type::f32   ? comm::DType::f32
                               : round.type == compress::Round::Type::f16 ? comm::DType::f16
                                                                          : comm::DType::bf16;
      const comm::Buffer buffer(round.data, round.count, type);
      comm_.run(comm::allreduce(buffer, {.op = comm::ReduceOp::mean, .algorithm = setup_.algorithm}));
      sent += allreduce_bytes(buffer.bytes(), comm_.size());
    }
    linear.finish(values, gradients_ + bucket.begin);
    forget_sent(bucket);
    count_bytes(bucket, sent);
  }

  std::vector<step::NamedTensor> save() override {
    auto state = Compressed::save();
    std::vector<at::Tensor> all = {at::empty({0})};
    for (const auto& part : parts_) all.push_back(at::from_blob(part->state().data(), {static_cast<std::int64_t>(part->state().size())}));
    state.push_back({kFactors, at::cat(all)});
    return state;
  }

  void load(std::span<const step::NamedTensor> state) override {
    if (is_optional(state, kFactors)) return Compressed::load(state);
    const at::Tensor saved = step::find_saved(state, kFactors).cpu().contiguous();
    std::int64_t length = 0;
    for (const auto& part : parts_) length += static_cast<std::int64_t>(part->state().size());
    if (length != saved.numel())
      throw ConfigError(
          fmt::format("'{}' of the checkpoint has {} values and should have {}; resume with the same compress.rank and "
                      "strategy.bucket_mb",
                      kFactors, saved.numel(), length));
    Compressed::load(state);
    const float* from = saved.data_ptr<float>();
    for (const auto& part : parts_) {
      std::copy_n(from, part->state().size(), part->state().begin());
      from += part->state().size();
    }
  }

 private:
  static constexpr const char* kFactors = "compress.factors";
  const compress::Compressor& compressor_;
  std::vector<std::unique_ptr<compress::Linear>> parts_;  // by bucket
  std::vector<std::int64_t> begins_;
};

}  // namespace

void check_compressible(const ExchangeSetup& setup) {
  const at::Tensor& gradients = setup.arena.gradients();
  if (gradients.is_cuda()) throw ConfigError("compressors work in host memory; use comm.compression=none on a GPU, or train.device=cpu");
  if (gradients.scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("compression '{}' takes gradients in Float, and these are in {}; call module->to(torch::kFloat) first, or "
                    "use compression 'none'",
                    setup.compression, c10::toString(gradients.scalar_type())));
}

std::unique_ptr<Exchange> make_compressed(const ExchangeSetup& setup) {
  const auto& row = find(compress::compressors(), "compression", setup.compression);
  check_compressible(setup);
  if (row.make.linear) return std::make_unique<Averaged>(setup, row.make);
  auto coder = row.make.coder(setup.compress);
  if (coder->traffic() == compress::Coder::Traffic::dense) return std::make_unique<Dense>(setup, row.make, std::move(coder));
  return std::make_unique<Sparse>(setup, row.make, std::move(coder));
}

}  // namespace paceline::data_parallel

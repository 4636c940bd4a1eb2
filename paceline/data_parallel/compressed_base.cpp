#include "paceline/data_parallel/compressed_base.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "paceline/data_parallel/arena_rows.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/tensor/recorded.h"

namespace paceline::data_parallel {
namespace {

/// A bucket's layout for compressors: matrices stay matrices.
compress::RangeLayout layout_of(const tensor::Arena& arena, const Bucket& bucket) {
  compress::RangeLayout layout;
  layout.length = bucket.count();
  for (std::size_t i = bucket.first_entry; i < bucket.last_entry; ++i) {
    const tensor::Entry& entry = arena.entries()[i];
    const std::int64_t rows = entry.shape.size() >= 2 ? entry.shape[0] : 1;
    layout.parts.push_back({entry.offset - bucket.begin, entry.count, rows, entry.count / std::max<std::int64_t>(rows, 1)});
  }
  return layout;
}

}  // namespace

Compressed::Compressed(const ExchangeSetup& setup, const compress::Compressor& compressor)
    : compressor_(compressor),
      setup_(setup),
      arena_(setup.arena),
      feedback_(compressor, setup.compress, setup.momentum, setup.comm.size(), arena_.length()),
      comm_(setup.comm),
      values_(arena_.gradients()),
      residual_(tensor::allocate_pages(arena_.length(), at::TensorOptions().dtype(values_.dtype()).device(values_.device()))) {
  if (feedback_.has_velocity()) momentum_ = tensor::allocate_pages(arena_.length(), residual_.options());
  kept_ = tensor::TravellingBytes(static_cast<std::int64_t>(residual_.nbytes() + (momentum_.defined() ? momentum_.nbytes() : 0)));
}

void Compressed::prepare(const std::vector<Bucket>& buckets) {
  layouts_.clear();
  for (const Bucket& bucket : buckets) layouts_.push_back(layout_of(arena_, bucket));
}

void Compressed::begin_step(const step::Point& point) {
  context_ = {.seed = setup_.seed, .rank = comm_.rank(), .step = point.step, .epoch = point.epoch};
}

std::vector<step::NamedTensor> Compressed::save() {
  std::vector<step::NamedTensor> state = rows(kResidual, residual_);
  if (momentum_.defined()) std::ranges::move(rows(kVelocity, momentum_), std::back_inserter(state));
  return state;
}

void Compressed::load(std::span<const step::NamedTensor> state) {
  if (!is_optional(state, kResidual)) take_arena_row(comm_, arena_, state, kResidual, residual_);
  if (momentum_.defined()) take_arena_row(comm_, arena_, state, kVelocity, momentum_);
}

std::vector<step::NamedTensor> Compressed::rows(const std::string& name, const at::Tensor& flat) const {
  return arena_rows(arena_, name, flat, comm_.rank(), comm_.size());
}

bool Compressed::is_optional(std::span<const step::NamedTensor> state, const std::string& name) const {
  return !saved_arena_rows(arena_, state, name) && saved_arena_rows(arena_, state, kResidual).value_or(1) == 1;
}

float* Compressed::accumulate(const Bucket& bucket) {
  const compress::Feedback::Kept kept = kept_of(bucket);
  if (values_.is_cpu()) feedback_.add(gradients() + bucket.begin, kept);
  else add_gradient(feedback_, values_.narrow(0, bucket.begin, bucket.count()), tensors_of(bucket));
  return kept.residual;
}

void Compressed::forget_sent(const Bucket& bucket) {
  if (values_.is_cpu()) feedback_.said(kept_of(bucket));
  else data_parallel::forget_sent(feedback_, tensors_of(bucket));
}

compress::CodingContext Compressed::context(const Bucket& bucket, std::uint64_t stage) const {
  compress::CodingContext made = context_;
  made.place = static_cast<std::uint64_t>(bucket.begin) * 2 + stage;
  return made;
}

void Compressed::count_bytes(const Bucket& bucket, std::int64_t sent) {
  bytes_sent_ += sent;
  bytes_plain_ += allreduce_bytes(bucket.count() * 4, comm_.size());
}

void* Compressed::stream() const { return tensor::current_stream(values_.device()); }

void Compressed::fill_with_zeros(const at::Tensor& values) {
  if (values.is_cpu()) std::memset(values.data_ptr(), 0, values.nbytes());
  else values.zero_();
}

compress::Feedback::Kept Compressed::kept_of(const Bucket& bucket) const {
  return {.residual = residual_.data_ptr<float>() + bucket.begin,
          .velocity = momentum_.defined() ? momentum_.data_ptr<float>() + bucket.begin : nullptr,
          .count = bucket.count()};
}

KeptTensors Compressed::tensors_of(const Bucket& bucket) const {
  const auto part = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, bucket.begin, bucket.count()) : all; };
  return {.residual = part(residual_), .velocity = part(momentum_)};
}

}  // namespace paceline::data_parallel

#include "paceline/train/feed.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>

#include "paceline/base/error.h"
#include "paceline/data/augment_cuda.h"
#include "paceline/data/prefetching_loader.h"
#include "paceline/tensor/read_back.h"
#include "paceline/tensor/recorded.h"
#include "paceline/train/resident_feed.h"

namespace paceline::train {
namespace {

/// A tensor that stays in place from batch to batch as long as the shape does.
void keep_in_place(at::Tensor& place, const at::Tensor& host, const at::TensorOptions& options) {
  if (!place.defined() || place.sizes() != host.sizes()) place = at::empty(host.sizes(), options.dtype(host.dtype()));
}

class HostFeed final : public Feed {
 public:
  HostFeed(const data::Dataset& dataset, const data::LoaderOptions& options, const data::DataConfig& config, const c10::Device& device)
      : info_(dataset.info()),
        source_(data::make_prefetching_loader(dataset, options, static_cast<int>(config.threads), static_cast<int>(config.prefetch))),
        device_(device) {}

  void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch) override { source_->start(epoch, batch, first_batch); }
  std::int64_t batches() const override { return source_->batches(); }

  std::optional<step::Batch> next() override {
    const data::Batch* host = source_->next();
    if (!host) return std::nullopt;
    const step::Batch on_host = as_tensors(*host, info_);
    if (device_.is_cpu()) return on_host;
    Staged& staged = staged_[turn_++ % staged_.size()];
    staged.copied.wait();
    staged.copy(staged.inputs, on_host.inputs, on_device_.inputs, device_);
    staged.copy(staged.targets, on_host.targets, on_device_.targets, device_);
    staged.copied.set(device_);
    on_device_.global_samples = host->global_count;
    return on_device_;
  }

 private:
  /// Memory that the GPU reads by itself: the host continues while the previous step is still running, and waits for the copy of the batch
  /// that lay here before. From other memory LibTorch's copy would wait for all that the stream has to do.
  struct Staged {
    void copy(at::Tensor& through, const at::Tensor& from, at::Tensor& to, const c10::Device& device) {
      keep_in_place(through, from, at::TensorOptions().pinned_memory(true));
      keep_in_place(to, from, at::TensorOptions().device(device));
      through.copy_(from);
      to.copy_(through, /*non_blocking=*/true);
    }
    at::Tensor inputs, targets;
    tensor::QueueMark copied;
  };

  data::Info info_;
  std::unique_ptr<data::BatchSource> source_;
  c10::Device device_;
  step::Batch on_device_;
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
};

}  // namespace

step::Batch as_tensors(const data::Batch& batch, const data::Info& info) {
  std::vector<std::int64_t> shape = {batch.count};
  shape.insert(shape.end(), info.input.begin(), info.input.end());
  const at::Tensor inputs = info.tokens ? at::from_blob(const_cast<std::int64_t*>(batch.tokens.data()), shape, at::kLong)
                                        : at::from_blob(const_cast<float*>(batch.inputs.data()), shape, at::kFloat);
  std::vector<std::int64_t> target_shape = {batch.count};
  target_shape.insert(target_shape.end(), info.target.begin(), info.target.end());
  const at::Tensor targets = info.real_targets ? at::from_blob(const_cast<float*>(batch.values.data()), target_shape, at::kFloat)
                                               : at::from_blob(const_cast<std::int64_t*>(batch.targets.data()), target_shape, at::kLong);
  return {inputs, targets, batch.global_count};
}

std::unique_ptr<Feed> make_feed(const data::Dataset& dataset, const data::LoaderOptions& options, const data::DataConfig& config,
                                const nn::Model& module) {
  const bool on_device = config.residency == "device";
  const bool too_deep = dataset.pixels() && dataset.info().input[0] > data::kMostChannels;
  if (too_deep && on_device)
    throw ConfigError(fmt::format("data.residency=device augments images of up to {} channels, but '{}' has {}; use data.residency=host",
                                  data::kMostChannels, config.name, dataset.info().input[0]));
  auto resident = too_deep ? nullptr : make_resident_feed(dataset, options, config.residency, module);
  if (resident) return resident;
  if (on_device)
    throw ConfigError("data.residency=device needs a CUDA device and a dataset of pixels that fits on it; use data.residency=auto");
  return std::make_unique<HostFeed>(dataset, options, config, module.device());
}

}  // namespace paceline::train

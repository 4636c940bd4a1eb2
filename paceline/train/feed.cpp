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
    const step::Batch on_device{.inputs = staged.copy(staged.inputs, on_host.inputs, inputs_, device_),
                                .targets = staged.copy(staged.targets, on_host.targets, targets_, device_),
                                .global_samples = host->global_count};
    staged.copied.set(device_);
    return on_device;
  }

 private:
  /// Pinned memory, which the GPU reads directly: the host continues while the previous step is still running, and only waits for the copy
  /// of the batch that was here before. A copy from other memory would wait for all work on the stream.
  struct Staged {
    static at::Tensor copy(at::Tensor& through, const at::Tensor& from, at::Tensor& to, const c10::Device& device) {
      const at::Tensor staged = in_place(through, from.sizes(), from.options().pinned_memory(true));
      staged.copy_(from);
      return in_place(to, from.sizes(), from.options().device(device)).copy_(staged, /*non_blocking=*/true);
    }
    at::Tensor inputs, targets;  // of the longest batch
    tensor::QueueMark copied;
  };

  data::Info info_;
  std::unique_ptr<data::BatchSource> source_;
  c10::Device device_;
  at::Tensor inputs_, targets_;  // on the device, of the longest batch
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
};

}  // namespace

at::Tensor in_place(at::Tensor& longest, at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format) {
  const bool fits = longest.defined() && longest.size(0) >= sizes[0] && longest.sizes().slice(1) == sizes.slice(1);
  if (!fits) longest = at::empty(sizes, options, format);
  return longest.narrow(0, 0, sizes[0]);
}

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

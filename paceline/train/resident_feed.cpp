#include "paceline/train/resident_feed.h"

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "paceline/data/augment.h"
#include "paceline/data/augment_cuda.h"
#include "paceline/tensor/recorded.h"

namespace paceline::train {
namespace {

class ResidentFeed final : public Feed {
 public:
  ResidentFeed(const data::Dataset& dataset, const data::LoaderOptions& options, const nn::Model& module)
      : dataset_(dataset),
        options_(options),
        device_(module.device()),
        sampler_(data::make_sampler(dataset, options)),
        normalisation_(dataset.info()) {
    const data::Pixels pixels = *dataset.pixels();
    const auto bytes = static_cast<std::int64_t>(pixels.bytes.size()), count = static_cast<std::int64_t>(pixels.labels.size());
    pixels_ = at::from_blob(const_cast<std::uint8_t*>(pixels.bytes.data()), {bytes}, at::kByte).to(device_);
    labels_ = at::from_blob(const_cast<std::int64_t*>(pixels.labels.data()), {count}, at::kLong).to(device_);
    compute_ = module.precision() == tensor::Precision::bf16 ? c10::kBFloat16 : c10::kFloat;
  }

  void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch) override {
    sampler_.start(epoch, batch);
    next_ = first_batch;
    first_plan_.clear();
    std::vector<data::AugmentPlan> all, one;
    for (std::int64_t index = 0; index < sampler_.batches(); ++index) {
      data::draw_plans(dataset_, options_, sampler_, epoch, index, one);
      first_plan_.push_back(static_cast<std::int64_t>(all.size()));
      all.insert(all.end(), one.begin(), one.end());
    }
    first_plan_.push_back(static_cast<std::int64_t>(all.size()));
    const auto bytes = static_cast<std::int64_t>(all.size() * sizeof(data::AugmentPlan));
    plans_ = at::from_blob(all.data(), {bytes}, at::kByte).to(device_);  // a blocking copy: `all` may be destroyed
  }

  std::int64_t batches() const override { return sampler_.batches(); }

  std::optional<step::Batch> next() override {
    if (next_ >= batches()) return std::nullopt;
    const std::int64_t begin = first_plan_[static_cast<std::size_t>(next_)],
                       count = first_plan_[static_cast<std::size_t>(next_) + 1] - begin;
    batch_.global_samples = sampler_.count(next_++);
    const auto& shape = dataset_.info().input;  // {C, H, W}
    const auto on_device = at::TensorOptions().device(device_);
    batch_.inputs = in_place(inputs_, {count, shape[0], shape[1], shape[2]}, on_device.dtype(compute_), at::MemoryFormat::ChannelsLast);
    batch_.targets = in_place(targets_, {count}, on_device.dtype(at::kLong));
    const auto type = compute_ == at::kBFloat16 ? data::OutType::bf16 : data::OutType::f32;
    data::launch_augment(pixels_.data_ptr<std::uint8_t>(), labels_.data_ptr<std::int64_t>(),
                         reinterpret_cast<const data::AugmentPlan*>(plans_.data_ptr()) + begin, count, static_cast<int>(shape[0]),
                         static_cast<int>(shape[1]), static_cast<int>(shape[2]), normalisation_.centre.data(), normalisation_.scale.data(),
                         batch_.inputs.data_ptr(), type, /*channels_last=*/true, batch_.targets.data_ptr<std::int64_t>(),
                         tensor::current_stream(device_));
    return batch_;
  }

 private:
  const data::Dataset& dataset_;
  data::LoaderOptions options_;
  c10::Device device_;
  data::Sampler sampler_;
  c10::ScalarType compute_ = c10::kFloat;
  data::Normalisation normalisation_;
  at::Tensor pixels_, labels_, plans_;
  at::Tensor inputs_, targets_;           // of the longest batch
  std::vector<std::int64_t> first_plan_;  // by batch, and one past the end
  std::int64_t next_ = 0;
  step::Batch batch_;
};

}  // namespace

std::unique_ptr<Feed> make_resident_feed(const data::Dataset& dataset, const data::LoaderOptions& options, const std::string& residency,
                                         const nn::Model& module) {
  const auto pixels = dataset.pixels();
  if (!module.device().is_cuda() || residency == "host" || !pixels) return nullptr;
  const c10::DeviceGuard asked(module.device());  // the device that cudaMemGetInfo reports
  std::size_t free_bytes = 0, total_bytes = 0;
  const bool known = cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
  if (residency == "auto" && (!known || pixels->bytes.size() > free_bytes / 4)) return nullptr;
  return std::make_unique<ResidentFeed>(dataset, options, module);
}

}  // namespace paceline::train

#else

namespace paceline::train {

std::unique_ptr<Feed> make_resident_feed(const data::Dataset&, const data::LoaderOptions&, const std::string&, const nn::Model&) {
  return nullptr;
}

}  // namespace paceline::train

#endif

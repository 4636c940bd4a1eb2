#include "paceline/train/torch_dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "paceline/base/error.h"
#include "paceline/graph/graph.h"

namespace paceline::train {
namespace {

using Get = std::function<torch::data::Example<>(std::size_t)>;

class TorchDataset final : public data::Dataset {
 public:
  TorchDataset(Get get, std::size_t size, const DatasetOptions& options) : get_(std::move(get)), size_(static_cast<std::int64_t>(size)) {
    if (size_ == 0) throw ConfigError(fmt::format("dataset '{}' has no sample", options.name));
    const torch::data::Example<> first = checked(0);
    info_.key = options.name;
    info_.input = first.data.sizes().vec();
    info_.tokens = !first.data.is_floating_point();
    info_.target = first.target.sizes().vec();
    info_.real_targets = first.target.is_floating_point();
    info_.class_names = options.class_names;
    info_.classes = std::ssize(options.class_names);
    input_count_ = first.data.numel(), target_count_ = first.target.numel();
  }

  const data::Info& info() const override { return info_; }
  std::int64_t size() const override { return size_; }

  void prepare(data::Batch& batch, std::int64_t count) const override {
    batch.count = count;
    const auto inputs = static_cast<std::size_t>(count * input_count_), targets = static_cast<std::size_t>(count * target_count_);
    if (info_.tokens) batch.tokens.resize(inputs);
    else batch.inputs.resize(inputs);
    if (info_.real_targets) batch.values.resize(targets);
    else batch.targets.resize(targets);
  }

  void read(std::int64_t index, RandomStream*, data::Batch& batch, std::int64_t slot) const override {
    const torch::data::Example<> sample = checked(index);
    require_same(sample.data.sizes(), info_.input, "an input", index);
    require_same(sample.target.sizes(), info_.target, "a target", index);
    if (info_.tokens) copy(sample.data, batch.tokens, slot * input_count_);
    else copy(sample.data, batch.inputs, slot * input_count_);
    if (info_.real_targets) copy(sample.target, batch.values, slot * target_count_);
    else copy(sample.target, batch.targets, slot * target_count_);
  }

 private:
  /// Datasets of torch::data are not guaranteed to be thread-safe.
  torch::data::Example<> checked(std::int64_t index) const {
    const at::NoGradGuard no_grad;
    torch::data::Example<> sample;
    {
      const std::lock_guard lock(mutex_);
      sample = get_(static_cast<std::size_t>(index));
    }
    if (!sample.data.defined() || !sample.target.defined())
      throw ConfigError(fmt::format("sample {} of the dataset has no {}; give every sample both tensors", index,
                                    sample.data.defined() ? "target" : "input"));
    return sample;
  }

  void require_same(at::IntArrayRef shape, const std::vector<std::int64_t>& expected, const char* what, std::int64_t index) const {
    if (shape == at::IntArrayRef(expected)) return;
    throw ConfigError(fmt::format("sample {} of dataset '{}' has {} of shape {}, but the first one has {}; give all the same shape", index,
                                  info_.key, what, graph::to_string(shape.vec()), graph::to_string(expected)));
  }

  template <class Vector>
  static void copy(const at::Tensor& values, Vector& place, std::int64_t begin) {
    using T = typename Vector::value_type;
    const at::Tensor plain = values.to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
    std::memcpy(place.data() + begin, plain.data_ptr<T>(), static_cast<std::size_t>(plain.numel()) * sizeof(T));
  }

  Get get_;
  std::int64_t size_, input_count_ = 0, target_count_ = 0;
  data::Info info_;
  mutable std::mutex mutex_;
};

}  // namespace

std::shared_ptr<const data::Dataset> dataset_of(Get get, std::size_t size, const DatasetOptions& options) {
  return std::make_shared<TorchDataset>(std::move(get), size, options);
}

}  // namespace paceline::train

#include "paceline/measure/device_speed.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "paceline/comm/reduce.h"
#include "paceline/measure/memory_bandwidth.h"
#include "paceline/step/updater.h"
#include "paceline/tensor/arena.h"
#include "paceline/tensor/backing.h"
#include "paceline/tensor/device.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace paceline::measure {
namespace {

using Points = std::vector<perf::Efficiency::Point>;  // flops of one call, flop/s

perf::Quantity measured(double value) { return {value, perf::Source::measured}; }

at::TensorOptions options_of(const c10::Device& device, perf::Precision precision) {
  const at::ScalarType type = precision == perf::Precision::bf16   ? at::kBFloat16
                              : precision == perf::Precision::fp16 ? at::kHalf
                                                                   : at::kFloat;
  return at::TensorOptions().dtype(type).device(device);
}

Points product_rates(const CallTimer& timer, perf::Precision precision, double largest) {
  Points rates;
  for (std::int64_t side = 16; 2.0 * std::pow(static_cast<double>(side), 3) <= largest; side *= 2) {
    const double flops = 2.0 * std::pow(static_cast<double>(side), 3);
    timer.rank.tell(fmt::format("products of {0} x {0} in {1}", side, name_of(precision)));
    const auto options = options_of(timer.device, precision);
    const at::Tensor a = at::randn({side, side}, options), b = at::randn({side, side}, options);
    at::Tensor c = at::empty({side, side}, options);
    rates.push_back({flops, flops / timer.of([&] { at::mm_out(c, a, b); })});
  }
  return rates;
}

/// 3 × 3 with equal numbers of input and output channels, which is most of what a convolutional network computes.
Points convolution_rates(const CallTimer& timer, perf::Precision precision, double largest) {
  struct Size {
    std::int64_t samples, channels, side;
  };
  constexpr Size kSizes[] = {{1, 8, 8}, {2, 16, 16}, {4, 32, 16}, {8, 64, 16}, {8, 64, 32}, {16, 128, 32}, {64, 128, 32}, {64, 256, 56}};
  Points rates;
  for (const auto& [samples, channels, side] : kSizes) {
    const double flops = 2.0 * 9 * static_cast<double>(samples * channels * channels * side * side);
    if (flops > largest) break;
    timer.rank.tell(fmt::format("convolutions of {} channels in {}", channels, name_of(precision)));
    const auto options = options_of(timer.device, precision);
    const auto format = timer.device.is_cuda() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const at::Tensor x = at::randn({samples, channels, side, side}, options).contiguous(format);
    const at::Tensor w = at::randn({channels, channels, 3, 3}, options).contiguous(format);
    rates.push_back({flops, flops / timer.of([&] { at::conv2d(x, w, {}, 1, 1); })});
  }
  return rates;
}

double memory_bytes_per_s(const CallTimer& timer) {
  timer.rank.tell("memory bandwidth");
  timer.rank.meet();
  if (!timer.device.is_cuda()) return timer.rank.mean(memory_bandwidth_gb_per_s(std::int64_t{64} << 20) * 1e9);
  constexpr std::int64_t kElements = std::int64_t{64} << 20;
  const auto options = at::TensorOptions().device(timer.device);
  const at::Tensor from = at::zeros({kElements}, options);
  at::Tensor into = at::zeros({kElements}, options);
  return 2.0 * 4 * kElements / timer.of([&] { into.copy_(from); });
}

/// SGD with momentum reads parameters, gradients and momentum, and writes parameters and momentum.
double update_bytes_per_s(const CallTimer& timer) {
  constexpr std::int64_t kElements = 16 << 20;
  constexpr double kStreams = 5;
  timer.rank.tell("updates");
  tensor::Arena arena({{.name = "weights", .shape = {kElements}}}, {.tensor = at::TensorOptions().dtype(at::kFloat).device(timer.device)});
  arena.gradients().fill_(1e-3);
  optim::OptimConfig config;
  config.name = "sgd", config.momentum = 0.9;
  step::Updater updater(arena, config);
  std::int64_t step = 0;
  return kStreams * 4 * kElements / timer.of([&] {
    updater.begin_step({.rate = 1e-4f, .step = ++step});
    updater.update_all();
  });
}

double reduce_bytes_per_s(const CallTimer& timer) {
  constexpr std::int64_t kElements = 2 << 20;
  timer.rank.tell("reductions");
  if (timer.device.is_cuda()) {
    const auto options = at::TensorOptions().device(timer.device);
    const at::Tensor from = at::zeros({kElements}, options);
    at::Tensor into = at::zeros({kElements}, options);
    return 4.0 * kElements / timer.of([&] { into.add_(from); });
  }
  std::vector<float> into(kElements), from(kElements);
  return 4.0 * kElements / timer.of([&] { comm::combine(comm::DType::f32, comm::ReduceOp::sum, into.data(), from.data(), kElements); });
}

/// On the CPU, what parallel.zero=2 and 3 do with every range that another rank owns.
double page_bytes_per_s(const CallTimer& timer) {
  constexpr std::int64_t kElements = 1 << 20;
  timer.rank.tell("pages");
  const at::Tensor flat = at::zeros({kElements});
  tensor::Backing backing(flat, tensor::Role::gradient, std::make_shared<tensor::Ledger>());
  const auto write = [&] { at::Tensor(flat).fill_(1); };  // touches the pages
  return 4.0 * kElements / timer.behind(write, [&] {
    backing.release(0, kElements);
    backing.commit(0, kElements);
  });
}

double launch_seconds(const CallTimer& timer) {
  timer.rank.tell("launches");
  at::Tensor one = at::zeros({1}, at::TensorOptions().device(timer.device));
  return timer.of([&] { one.add_(1); });
}

perf::Efficiency shares_of(const Points& rates, double peak) {
  perf::Efficiency efficiency{.points = {}, .source = perf::Source::measured};
  for (const auto& [flops, rate] : rates)  // in tenths of a percent, which is finer than measurements repeat
    efficiency.points.push_back({flops, std::clamp(std::round(rate / peak * 1000) / 10, 0.1, 100.0) / 100});
  return efficiency;
}

}  // namespace

perf::Speed speed_of(const Points& products, const Points& convolutions) {
  double peak = 0;
  for (const Points* rates : {&products, &convolutions})
    for (const auto& point : *rates) peak = std::max(peak, point.share);
  return {.flops = measured(peak), .products = shares_of(products, peak), .convolutions = shares_of(convolutions, peak)};
}

double memory_bytes(const c10::Device& device, int ranks_of_host) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) return static_cast<double>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
#endif
  static_cast<void>(device);
  double bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream limit("/sys/fs/cgroup/memory.max");  // a container's; "max" where there is none
  if (double most = 0; limit >> most && most > 0) bytes = std::min(bytes, most);
  return std::floor(bytes / ranks_of_host);
}

perf::Device measure_device(const CallTimer& timer, const std::vector<perf::Precision>& precisions, double largest) {
  perf::Device device;
  const auto speed = [&](perf::Precision precision) {
    return speed_of(product_rates(timer, precision, largest), convolution_rates(timer, precision, largest));
  };
  for (const perf::Precision precision : precisions) {
    timer.rank.meet();  // ranks that are threads share LibTorch's global switches
    tensor::configure_libtorch(timer.device, tensor::parse_precision(std::string(name_of(precision)), timer.device), timer.rank.threads,
                               true);
    const perf::Speed fresh = speed(precision);
    if (precision == perf::Precision::fp32) {
      device.flops = fresh.flops, device.products = fresh.products, device.convolutions = fresh.convolutions;
      device.memory_bandwidth = measured(memory_bytes_per_s(timer));
      device.launch = measured(launch_seconds(timer));
      device.update_bandwidth = measured(update_bytes_per_s(timer));
      device.reduce_bandwidth = measured(reduce_bytes_per_s(timer));
      if (timer.device.is_cpu()) device.page_bandwidth = measured(page_bytes_per_s(timer));
    } else if (precision == perf::Precision::tf32) {
      device.tf32 = fresh;
    } else {
      (precision == perf::Precision::bf16 ? device.bf16 : device.fp16) = fresh;
    }
  }
  device.memory = measured(memory_bytes(timer.device, timer.rank.comm.topology().per_host));
  return device;
}

}  // namespace paceline::measure

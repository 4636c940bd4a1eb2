#include "paceline/tensor/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <omp.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#endif
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace paceline::tensor {

int gpu_count() {
#if PACELINE_WITH_CUDA
  return at::hasCUDA() ? static_cast<int>(at::cuda::device_count()) : 0;
#else
  return 0;
#endif
}

bool cuda_available() { return gpu_count() > 0; }

c10::Device parse_device(const std::string& text) {
  if (text == "auto") return parse_device(cuda_available() ? "cuda" : "cpu");
  if (text == "cpu") return c10::Device(c10::kCPU);
  const bool is_cuda = text == "cuda" || text.starts_with("cuda:");
  if (!is_cuda) throw ConfigError(fmt::format("unknown device '{}'; known: auto, cpu, cuda, cuda:N", text));
#if PACELINE_WITH_CUDA
  if (!cuda_available()) throw ConfigError(fmt::format("device '{}': no CUDA device was found; use cpu", text));
  int index = at::cuda::current_device();
  if (text != "cuda") {
    const std::string digits = text.substr(5);
    const bool number = !digits.empty() && digits.size() < 4 && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!number) throw ConfigError(fmt::format("unknown device '{}'; known: auto, cpu, cuda, cuda:N", text));
    index = std::stoi(digits);
  }
  const int devices = static_cast<int>(at::cuda::device_count());
  if (index >= devices) throw ConfigError(fmt::format("device '{}': this machine has {} CUDA device(s), numbered from 0", text, devices));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
#else
  throw ConfigError(fmt::format("device '{}': this build has no CUDA; use cpu, or build with -DPACELINE_CUDA=ON", text));
#endif
}

void use_gpu([[maybe_unused]] int index) {
#if PACELINE_WITH_CUDA
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
#endif
}

Precision parse_precision(const std::string& text, const c10::Device& device) {
  if (text == "fp32") return Precision::fp32;
  if (text == "bf16") return Precision::bf16;
  if (text != "tf32") throw ConfigError(fmt::format("unknown precision '{}'; known: fp32, tf32, bf16", text));
  if (!device.is_cuda()) throw ConfigError("precision 'tf32' needs a CUDA device; use fp32 or bf16");
  return Precision::tf32;
}

bool onednn_pays() {
#if defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
#else
  return true;
#endif
}

void configure_libtorch(const c10::Device& device, Precision precision, int threads, bool repeatable) {
  // At most as many as OpenMP provides (OMP_THREAD_LIMIT): OpenBLAS divides a product among the configured number of threads, and waits for
  // all of them.
  const int used = std::min(threads > 0 ? threads : usual_threads(usable_cores()), omp_get_thread_limit());
  at::set_num_threads(used);
  // LibTorch's setting does not affect an OpenBLAS with its own threads.
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(used);
  at::Context::setFlushDenormal(true);
  at::globalContext().setUserEnabledMkldnn(onednn_pays());
  // Vendors' libraries choose their loops in the first call: one thread makes that call, and the others wait for it. Before
  // the first product on a GPU, LibTorch looks once whether cuBLAS was told to repeat itself; while one worker's attention is computed in a
  // fixed order (nn/attention.cpp), the products of the others would be refused without. This is as much memory as LibTorch gives anyway.
  static std::once_flag first_product;
  std::call_once(first_product, [&] {
    if (device.is_cuda()) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    at::mm(at::ones({64, 64}), at::ones({64, 64}));
  });
  if (!device.is_cuda()) return;
  at::globalContext().setAllowTF32CuBLAS(precision != Precision::fp32);
  at::globalContext().setAllowTF32CuDNN(precision != Precision::fp32);
  at::globalContext().setDeterministicCuDNN(repeatable);
  at::globalContext().setBenchmarkCuDNN(!repeatable);
}

std::string device_name(const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) return at::cuda::getDeviceProperties(device.index())->name;
#endif
  return device.is_cpu() ? "cpu" : device.str();
}

std::int64_t device_memory([[maybe_unused]] const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) return static_cast<std::int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
#endif
  return 0;
}

void synchronize(const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) at::cuda::getCurrentCUDAStream(device.index()).synchronize();
#else
  (void)device;
#endif
}

}  // namespace paceline::tensor

// Where tensors are, and how LibTorch computes on them: the only place that sets LibTorch's global switches.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace paceline::tensor {

enum class Precision { fp32, tf32, bf16 };

/// "cpu", "cuda" (this thread's current GPU), "cuda:1" or "auto" ("cuda" if there is one, else "cpu"). ConfigError if there is none.
c10::Device parse_device(const std::string& text);

/// Sets this thread's current GPU; threads begin with the first.
void use_gpu(int index);

/// ConfigError if the device does not support it.
Precision parse_precision(const std::string& text, const c10::Device& device);

/// Sets LibTorch's switches. The number of threads to compute with (0: usual_threads) and the flushing of denormals are settings of this
/// thread; so every thread that computes calls this, before its first tensor. The convolution libraries, TF32 and OpenBLAS's threads are
/// settings of the process: all threads must pass the same. `repeatable` restricts cuDNN to algorithms that give the same bits each time;
/// without it, cuDNN tries all and takes the fastest.
void configure_libtorch(const c10::Device& device, Precision precision, int threads, bool repeatable);

/// Whether convolutions use oneDNN. Chosen by the processor, not by a measurement, so that runs repeat bit for bit: oneDNN's builds for
/// aarch64 without SVE fall back to reference code, at a third of the speed of im2col and BLAS.
bool onednn_pays();

bool cuda_available();
int gpu_count();
std::string device_name(const c10::Device& device);
/// Bytes of a GPU's memory; 0 for another device.
std::int64_t device_memory(const c10::Device& device);
/// Waits until the device has finished its work; does nothing on the CPU.
void synchronize(const c10::Device& device);

}  // namespace paceline::tensor

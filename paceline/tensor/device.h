// Where tensors live and how LibTorch computes on them: the one place that sets LibTorch's global switches.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace paceline::tensor {

enum class Precision { fp32, tf32, bf16 };

/// "cpu", "cuda" (the GPU that this thread speaks to), "cuda:1" or "auto" (as "cuda" where there is one). ConfigError where there is none.
c10::Device parse_device(const std::string& text);

/// The GPU that this thread speaks to from now on; threads begin with the first.
void use_gpu(int index);

/// ConfigError where the device cannot do it.
Precision parse_precision(const std::string& text, const c10::Device& device);

/// Sets LibTorch's switches. Of this thread alone are the number of threads that it computes with (0: usual_threads) and the flushing of
/// denormals; so every thread that computes calls it, before its first tensor. Of the process are the convolution libraries, TF32 and the
/// threads of OpenBLAS: all threads give the same. `repeatable` keeps cuDNN to algorithms that give the same bits each time; without it
/// cuDNN tries all and takes the fastest.
void configure_libtorch(const c10::Device& device, Precision precision, int threads, bool repeatable);

/// Whether convolutions go through oneDNN here. Chosen by the processor and not by a measurement, so that runs repeat bit for bit: its
/// builds for aarch64 without SVE fall to reference code at a third of the speed of im2col and BLAS.
bool onednn_pays();

bool cuda_available();
int gpu_count();
std::string device_name(const c10::Device& device);
/// Waits until the device has done what was asked; nothing on the CPU.
void synchronize(const c10::Device& device);

}  // namespace paceline::tensor

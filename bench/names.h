// The benchmarks by name, for the help and the completions of `paceline`, which does not contain them.
#pragma once

#include <cstddef>

#include "paceline/base/registry.h"

namespace paceline::bench {

inline constexpr Entry<std::nullptr_t> kNames[] = {
    {"optim", "fused updates of ResNet-50's parameters, against torch::optim and the memory bandwidth", nullptr},
    {"step", "one worker's training step, against the same step in PyTorch (Python)", nullptr},
    {"train", "several workers, against PyTorch's DistributedDataParallel over Gloo", nullptr},
    {"zero",
     "ZeRO's stages against plain data parallelism: samples per second, traffic, memory, and PyTorch's where installed (--sizes "
     "LAYERS,WIDTH)",
     nullptr},
    {"memory", "peak memory of four ranks under ZeRO's stages, against the formulas; gpt of 100 M parameters (--sizes LAYERS,WIDTH)",
     nullptr},
    {"tensor", "tensor-parallel workers with a core each, against one worker with one core", nullptr},
    {"overlap", "overlap and compression between two hosts, over a link of 1 Gbit/s", nullptr},
    {"pipeline", "bubbles of pipeline schedules against their formulas, and two stages on two cores against one thread", nullptr},
    {"data", "images per second from one core: crop and flip, JPEG folders", nullptr},
    {"compress", "one core's speed of encoding and decoding gradients, their ratio, and that of a plain copy", nullptr},
    {"predictors", "time of a report on LC-ASGD's server: both predictors, by steps ahead, against the slides' times", nullptr},
    {"ps", "pull and push of ResNet-18's parameters: in process against a plain copy, and over gRPC on loopback", nullptr},
    {"allreduce", "time by message size, against Open MPI, MPICH and Gloo (--peers) and the limit that memory sets", nullptr},
    {"reduce_scatter", "the same", nullptr},
    {"all_gather", "the same", nullptr},
    {"broadcast", "the same", nullptr},
};

}  // namespace paceline::bench

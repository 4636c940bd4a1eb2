// Weights to and from safetensors under the names of PyTorch's state_dict, so that they go to and come from Python.
#pragma once

#include <filesystem>

#include "paceline/nn/model.h"
#include "paceline/train/checkpoint.h"

namespace paceline::train {

inline constexpr std::string_view kModelPrefix = "model.";

/// Parameters and statistics of a module under "model." + PyTorch's name.
std::vector<NamedTensor> model_tensors(nn::Model& module);

/// Reads a file of weights into a module. "num_batches_tracked" is ignored; anything else that does not fit is a ConfigError with the
/// difference of names and shapes.
void load_weights(nn::Model& module, const std::filesystem::path& file);

/// Writes the model of a checkpoint as PyTorch would name it (num_batches_tracked included).
FileStamp export_weights(const Checkpoint& checkpoint, const std::filesystem::path& file);

}  // namespace paceline::train

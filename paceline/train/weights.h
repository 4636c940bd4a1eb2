// Weights to and from safetensors under the names of PyTorch's state_dict, so that they can be exchanged with Python.
#pragma once

#include <filesystem>

#include "paceline/nn/model.h"
#include "paceline/train/checkpoint.h"

namespace paceline::train {

inline constexpr std::string_view kModelPrefix = "model.";

/// Parameters and statistics of a module under "model." + PyTorch's name: what `rank` of the data axis holds of them.
std::vector<NamedTensor> model_tensors(nn::Model& module, int rank = 0);
/// The same for the first of several servers: of the parameters it holds a range of the arena, and all the rest.
std::vector<NamedTensor> model_tensors_in(nn::Model& module, step::Holders::Range range);
/// What another server holds of an arena: `values` are the range's.
std::vector<NamedTensor> served_tensors(const tensor::Arena& arena, step::Holders::Range range, const at::Tensor& values);

/// For a rank of the tensor axis other than its first: the state without what all its ranks replicate, which the first one reports. Owners
/// on the data axis may be cut elsewhere there, since slices of other tensors differ in size.
std::vector<NamedTensor> sliced_alone(std::vector<NamedTensor> state, nn::Model& module);

/// Reads weights into a module: a file, a folder of files with an index, the index itself, a checkpoint, or the newest one of a run.
/// Those of Hugging Face's GPT-2 are recognised by their layout (gpt2_names.h). "num_batches_tracked" is ignored; anything else that does
/// not fit is a ConfigError with the difference in names and shapes.
void load_weights(nn::Model& module, const std::filesystem::path& file);

inline constexpr std::int64_t kLargestWeights = std::int64_t{5} << 30;  // bytes of one file of a folder

/// How weights are named and laid out: as in PyTorch's modules, or as in Hugging Face's GPT-2.
enum class Names { pytorch, gpt2 };

/// Writes the model of a checkpoint as PyTorch would name it (num_batches_tracked included): to a file, or, if `target` is a folder or ends
/// with '/', to files of at most `largest` bytes with an index. Returns the number of bytes.
std::int64_t export_weights(const Checkpoint& checkpoint, const std::filesystem::path& target, std::int64_t largest = kLargestWeights,
                            Names names = Names::pytorch);

}  // namespace paceline::train

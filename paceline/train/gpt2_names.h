// Weights of `gpt` in the format of Hugging Face's GPT-2.
//
// The names are the same; GPT-2's linear layers are Conv1D, whose weights are stored as {in, out} where ours are {out, in}. Files of the
// bare transformer, as most public ones are, omit "transformer." and have no head, because it is the token embedding.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/step/strategy.h"

namespace paceline::train {

/// Whether tensors under PyTorch's names have that layout.
bool has_gpt2_layout(std::span<const step::NamedTensor> tensors);

/// Converts from that format to ours. Drops the masks that old files contain.
void from_gpt2_layout(std::vector<step::NamedTensor>& tensors);

/// Converts from ours to that of GPT2LMHeadModel.state_dict(). ConfigError if GPT-2 has no such tensor.
void to_gpt2_layout(std::vector<step::NamedTensor>& tensors);

}  // namespace paceline::train

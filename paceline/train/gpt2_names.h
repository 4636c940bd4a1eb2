// Weights of `gpt` as Hugging Face's GPT-2 has them.
//
// The names are the same; GPT-2's products are Conv1D, whose weights lie as {in, out} where ours lie as {out, in}. Files of the bare
// transformer, as most public ones are, leave "transformer." out, and have no head: it is the token embedding.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/step/strategy.h"

namespace paceline::train {

/// Whether tensors under PyTorch's names are laid out so.
bool has_gpt2_layout(std::span<const step::NamedTensor> tensors);

/// From there to ours. Masks that old files hold are left out.
void from_gpt2_layout(std::vector<step::NamedTensor>& tensors);

/// From ours to there, as GPT2LMHeadModel.state_dict() has them. ConfigError where a tensor is none of GPT-2's.
void to_gpt2_layout(std::vector<step::NamedTensor>& tensors);

}  // namespace paceline::train

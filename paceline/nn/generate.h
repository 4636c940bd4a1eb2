// Generates text with a network that predicts tokens: one token after the other, each drawn from the network's distribution.
#pragma once

#include <functional>
#include <vector>

#include "paceline/nn/decoder.h"

namespace paceline::nn {

struct Sampling {
  double temperature = 1;  // divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  // choose among this many most likely tokens; 0: among all
  std::uint64_t seed = 1;
};

/// A token drawn from the logits of one position. Only the first `vocabulary` logits count, since a network may be padded.
std::int64_t draw_token(const at::Tensor& logits, std::int64_t vocabulary, const Sampling& sampling, RandomStream& random);

/// Draws `count` tokens after the prompt, which must not be empty, and calls `told` with each, until that returns false. Once the text
/// fills the network's positions, it recomputes the second half of the text and continues from there.
void generate(GraphModule& module, std::int64_t vocabulary, std::vector<std::int64_t> prompt, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int64_t token)>& told);

}  // namespace paceline::nn

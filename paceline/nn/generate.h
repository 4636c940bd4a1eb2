// Texts from a network that predicts tokens: one token after the other, each drawn from what the network says of it.
#pragma once

#include <functional>
#include <vector>

#include "paceline/nn/decoder.h"

namespace paceline::nn {

struct Sampling {
  double temperature = 1;  // divides the logits; 0: the likeliest token, always
  std::int64_t top_k = 0;  // draw among so many likeliest; 0: among all
  std::uint64_t seed = 1;
};

/// A token drawn from the logits of one position, of which the first `vocabulary` count: a network may have more, which pad it.
std::int64_t draw_token(const at::Tensor& logits, std::int64_t vocabulary, const Sampling& sampling, RandomStream& random);

/// Draws `count` tokens behind the prompt, which is not empty, and calls `told` with each; false ends it. Once the text fills
/// the network's positions, it computes the second half of the text again and continues from there.
void generate(GraphModule& module, std::int64_t vocabulary, std::vector<std::int64_t> prompt, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int64_t token)>& told);

}  // namespace paceline::nn

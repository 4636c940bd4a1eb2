// A decoder-only transformer of any size in GPT-2's layout (Radford et al., "Language models are unsupervised multitask learners", 2019):
// learned positions, norms before attention and MLP, GELU, a last norm, and a head without bias. model.layers, width and heads give its
// size; model.input is [positions], model.classes the vocabulary. GPT-2 small (12 layers, 768 wide, 12 heads, 1024 positions, 50257 tokens)
// comes out at 163,037,184 parameters, 38,597,376 in the head; with model.tied, as GPT-2 has it, the head's weight is the token embedding.
// With model.experts, every model.expert_every-th block has that many MLPs in place of one, and a gate that chooses among them for each
// position (Shazeer et al. 2017; GShard, Lepikhin et al. 2020; Switch Transformers, Fedus et al. 2021); docs/experts.md.
//
// Names are GPT-2's; weights are stored as {out, in} (GPT-2's own files store them transposed). Initial weights are N(0, 0.02); the
// projections that add to the residual stream have 1/√(2·layers) of that deviation, so that the stream's variance does not grow with depth.
#include <fmt/format.h>

#include <cmath>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

void block(Builder& net, const std::string& name, const ModelConfig& config, bool experts) {
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  const double dropout = dropout_or(config, 0);

  int stream = net.top();
  net.layer_norm(name + ".ln_1");
  net.attention(name + ".attn", {.heads = config.heads, .causal = true, .dropout = dropout, .projection_std = residual_std});
  if (dropout > 0) net.dropout(dropout);
  net.add(stream);

  stream = net.top();
  net.layer_norm(name + ".ln_2");
  if (experts) {
    net.experts(name + ".mlp", {.count = config.experts,
                                .top = config.experts_top,
                                .hidden = 4 * config.width,
                                .capacity = config.expert_capacity,
                                .balance = config.balance,
                                .projection_std = residual_std});
  } else {
    net.fc(name + ".mlp.c_fc", 4 * config.width).gelu();
    net.draw(Init::normal, residual_std).fc(name + ".mlp.c_proj", config.width).draw(Init::normal, 0.02);
  }
  if (dropout > 0) net.dropout(dropout);
  net.add(stream);
}

}  // namespace

Graph gpt(const ModelConfig& config) {
  Builder net(config, {1024}, 50257);
  net.require_tokens();
  const double dropout = dropout_or(config, 0);

  net.draw(Init::normal, 0.02);
  net.embedding("transformer", net.classes(), net.input()[0], config.width);
  const int embedding = net.top();
  if (dropout > 0) net.dropout(dropout);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const bool experts = config.experts > 0 && (layer + 1) % config.expert_every == 0;
    block(net, fmt::format("transformer.h.{}", layer), config, experts);
  }
  net.layer_norm("transformer.ln_f");
  if (config.tied) net.tied("lm_head", embedding);
  else net.fc("lm_head", net.classes(), false);
  return net.finish();
}

}  // namespace paceline::graph

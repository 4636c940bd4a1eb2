#include "paceline/nn/blocked_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "paceline/graph/working_sets.h"
#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/score_rows.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kRows = graph::kAttentionRows;

/// The rows [first, first + count) of the scores, and the keys [0, keys) that they see.
struct Block {
  std::int64_t first, count, keys;
};

std::vector<Block> blocks_of(std::int64_t time, bool causal) {
  std::vector<Block> blocks;
  for (std::int64_t first = 0; first < time; first += kRows) {
    const std::int64_t count = std::min(kRows, time - first);
    blocks.push_back({first, count, causal ? first + count : time});
  }
  return blocks;
}

/// Queries, keys and values, or their gradients: [n, T, head] each, n heads of one or of several samples.
struct Parts {
  at::Tensor q, k, v;
};

double scale_of(const Parts& x) { return 1 / std::sqrt(static_cast<double>(x.q.size(2))); }

/// The softmax of a block's scores.
at::Tensor weights_of(const Parts& x, const Block& block, bool causal) {
  at::Tensor scores = at::bmm(x.q.narrow(1, block.first, block.count), x.k.narrow(1, 0, block.keys).transpose(1, 2));
  const double scale = scale_of(x);
  if (score_rows::has_loops(scores)) {
    score_rows::softmax(scores, scale, causal ? block.first : score_rows::kSeesAll);
    return scores;
  }
  scores.mul_(scale);
  if (causal) {
    const at::Tensor future = at::ones({block.count, block.count}, scores.options().dtype(at::kBool)).triu_(1);
    scores.narrow(2, block.first, block.count).masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  return at::softmax(scores, -1);
}

/// Replaces the gradient of the weights by that of the scores.
at::Tensor scores_gradient(const at::Tensor& weights, const at::Tensor& gradient, double scale) {
  if (!score_rows::has_loops(weights)) return at::_softmax_backward_data(gradient, weights, -1, weights.scalar_type()).mul_(scale);
  score_rows::softmax_back(weights, gradient, scale);
  return gradient;
}

void block_forward(const Parts& x, const Block& block, bool causal, const at::Tensor& mask, const at::Tensor& out) {
  at::Tensor weights = weights_of(x, block, causal), place = out.narrow(1, block.first, block.count);
  if (mask.defined()) weights.mul_(mask);
  at::bmm_out(place, weights, x.v.narrow(1, 0, block.keys));
}

/// sum += aᵀ b. Sums of 16-bit values are kept in 32 bits.
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.scalar_type() == a.scalar_type()) sum.baddbmm_(a.transpose(1, 2), b);
  else sum.add_(at::bmm(a.transpose(1, 2), b));
}

void block_back(const Parts& x, const Block& block, bool causal, const at::Tensor& mask, const at::Tensor& gradient, const Parts& sums) {
  const at::Tensor weights = weights_of(x, block, causal), rows = gradient.narrow(1, block.first, block.count);
  add_product(sums.v.narrow(1, 0, block.keys), mask.defined() ? weights * mask : weights, rows);
  at::Tensor by_weights = at::bmm(rows, x.v.narrow(1, 0, block.keys).transpose(1, 2));
  if (mask.defined()) by_weights.mul_(mask);
  const at::Tensor by_scores = scores_gradient(weights, by_weights, scale_of(x));
  at::Tensor place = sums.q.narrow(1, block.first, block.count);
  at::bmm_out(place, by_scores, x.k.narrow(1, 0, block.keys));
  add_product(sums.k.narrow(1, 0, block.keys), by_scores, x.q.narrow(1, block.first, block.count));
}

/// The sizes of qkv: [batch, T, 3, heads, head].
struct Sizes {
  explicit Sizes(const at::Tensor& qkv) : batch(qkv.size(0)), time(qkv.size(1)), heads(qkv.size(3)), head(qkv.size(4)) {}
  std::int64_t batch, time, heads, head;
};

bool drops(const AttentionForm& form, const Pass& pass) { return pass.training && form.keep < 1; }

/// On a CPU without masks, each head is a separate task and reads qkv in place.
bool by_heads(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass) { return qkv.is_cpu() && !drops(form, pass); }

Parts head_of(const at::Tensor& qkv, std::int64_t sample, std::int64_t head) {
  const at::Tensor all = qkv[sample].select(2, head).unsqueeze(0);  // [1, T, 3, head]
  return {all.select(2, 0), all.select(2, 1), all.select(2, 2)};
}

at::Tensor one_head(const at::Tensor& rows, const Sizes& sizes, std::int64_t sample, std::int64_t head) {  // of [batch · T, heads · head]
  return rows.view({sizes.batch, sizes.time, sizes.heads, sizes.head})[sample].select(1, head).unsqueeze(0);
}

template <class Work>
void for_each_head(const Sizes& sizes, const Work& work) {
  at::parallel_for(0, sizes.batch * sizes.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    at::NoGradGuard no_grad;
    for (std::int64_t i = begin; i < end; ++i) work(i / sizes.heads, i % sizes.heads);
  });
}

/// Masks are drawn in the order of the blocks, and do not depend on how many heads this rank has.
at::Tensor draw(const at::Tensor& like, std::int64_t samples, const Sizes& sizes, const Block& block, const AttentionForm& form,
                const Pass& pass) {
  if (!drops(form, pass)) return {};
  const at::Tensor values = at::empty({samples, sizes.heads, block.count, block.keys}, like.options());
  const bool all = sizes.heads == form.all_heads;
  const MaskPart part = all ? MaskPart{} : MaskPart{.dim = 1, .all = form.all_heads, .first = form.first, .count = sizes.heads};
  return dropout_mask(values, part, form.keep, pass).view({samples * sizes.heads, block.count, block.keys});
}

/// Samples [begin, begin + count), whose heads are computed together.
template <class Work>
void for_each_group(const Sizes& sizes, const AttentionForm& form, const Work& work) {
  const std::int64_t most = std::clamp<std::int64_t>(graph::kScoresAtOnce / (form.all_heads * kRows * sizes.time), 1, sizes.batch);
  for (std::int64_t begin = 0; begin < sizes.batch; begin += most) work(begin, std::min(most, sizes.batch - begin));
}

Parts group_of(const at::Tensor& qkv, const Sizes& sizes, std::int64_t begin, std::int64_t count) {
  const at::Tensor parts = qkv.narrow(0, begin, count).permute({2, 0, 3, 1, 4}).contiguous();  // [3, samples, heads, T, head]
  const at::Tensor flat = parts.view({3, count * sizes.heads, sizes.time, sizes.head});
  return {flat[0], flat[1], flat[2]};
}

at::Tensor heads_first(const at::Tensor& rows, const Sizes& sizes, std::int64_t begin, std::int64_t count) {
  return rows.view({sizes.batch, sizes.time, sizes.heads, sizes.head})
      .narrow(0, begin, count)
      .transpose(1, 2)
      .reshape({count * sizes.heads, sizes.time, sizes.head});
}

}  // namespace

at::Tensor blocked_attention(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved) {
  const Sizes sizes(qkv);
  const std::vector<Block> blocks = blocks_of(sizes.time, form.causal);
  at::Tensor mixed = at::empty({sizes.batch * sizes.time, sizes.heads * sizes.head}, qkv.options());
  saved.clear();
  if (by_heads(qkv, form, pass)) {
    for_each_head(sizes, [&](std::int64_t sample, std::int64_t head) {
      const Parts x = head_of(qkv, sample, head);
      const at::Tensor out = one_head(mixed, sizes, sample, head);
      for (const Block& block : blocks) block_forward(x, block, form.causal, {}, out);
    });
    return mixed;
  }
  for_each_group(sizes, form, [&](std::int64_t begin, std::int64_t count) {
    const Parts x = group_of(qkv, sizes, begin, count);
    at::Tensor out = at::empty_like(x.q);
    for (const Block& block : blocks) {
      const at::Tensor mask = draw(qkv, count, sizes, block, form, pass);
      if (mask.defined() && !pass.masks) saved.push_back(mask);  // LibTorch's generator cannot draw it again
      block_forward(x, block, form.causal, mask, out);
    }
    mixed.view({sizes.batch, sizes.time, sizes.heads, sizes.head})
        .narrow(0, begin, count)
        .copy_(out.view({count, sizes.heads, sizes.time, sizes.head}).transpose(1, 2));
  });
  return mixed;
}

at::Tensor blocked_attention_back(const at::Tensor& gradient, const at::Tensor& qkv, const AttentionForm& form, const Pass& pass,
                                  const Tensors& saved) {
  const Sizes sizes(qkv);
  const std::vector<Block> blocks = blocks_of(sizes.time, form.causal);
  const bool half = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  const at::TensorOptions wide = half ? qkv.options().dtype(at::kFloat) : qkv.options();
  at::Tensor result = at::empty(qkv.sizes(), qkv.options());
  if (by_heads(qkv, form, pass)) {
    for_each_head(sizes, [&](std::int64_t sample, std::int64_t head) {
      const Parts x = head_of(qkv, sample, head), place = head_of(result, sample, head);
      const at::Tensor rows = one_head(gradient, sizes, sample, head);
      const Parts sums = {place.q, at::zeros(x.k.sizes(), wide), at::zeros(x.v.sizes(), wide)};
      for (const Block& block : blocks) block_back(x, block, form.causal, {}, rows, sums);
      place.k.copy_(sums.k), place.v.copy_(sums.v);
    });
    return result;
  }
  std::size_t drawn = 0;
  for_each_group(sizes, form, [&](std::int64_t begin, std::int64_t count) {
    const Parts x = group_of(qkv, sizes, begin, count);
    const at::Tensor rows = heads_first(gradient, sizes, begin, count);
    const Parts sums = {at::empty_like(x.q), at::zeros(x.k.sizes(), wide), at::zeros(x.v.sizes(), wide)};
    for (const Block& block : blocks) {
      const at::Tensor mask = saved.empty() ? draw(qkv, count, sizes, block, form, pass) : saved[drawn++];
      block_back(x, block, form.causal, mask, rows, sums);
    }
    const at::Tensor place = result.narrow(0, begin, count);
    const at::Tensor parts[] = {sums.q, sums.k, sums.v};
    for (std::int64_t i = 0; i < 3; ++i)
      place.select(2, i).copy_(parts[i].view({count, sizes.heads, sizes.time, sizes.head}).transpose(1, 2));
  });
  return result;
}

}  // namespace paceline::nn

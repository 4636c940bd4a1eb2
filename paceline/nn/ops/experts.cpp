// A sparsely gated mixture of experts: [batch, T, d] → [batch, T, d] (Shazeer et al. 2017; GShard, Lepikhin et al. 2020; Switch
// Transformers, Fedus et al. 2021).
//
//   p = softmax(x Wgᵀ) over the experts;  chosen: the `top` largest of a position
//   y = Σ g_j · E_j(x) over the chosen j, E_j(x) = gelu(x W1_jᵀ + b1_j) W2_jᵀ + b2_j
//   g = p of the chosen expert if top = 1; if top = 2, the two p divided by their sum
//
// An expert has graph::expert_slots() slots for each sequence. Positions take them in order, the first choice of a position before its
// second; a choice that finds no slot adds nothing. So the output of a position depends only on the positions before it in its sequence,
// not on the other samples of the batch, on the rank that computes them, or on later positions.
//
// The balance loss of a sequence is experts × Σ_e f_e P_e: f_e the share of positions whose first choice is e, P_e the mean of their p_e.
// It counts for every position as a target does, times Layer::balance.
//
// Slots lie as [experts, sequences, slots]. Where workers share the experts, an all-to-all sends every expert's slots to its worker, and
// another brings the answers back; the same two carry gradients in the backward pass. All workers' parts are as large as that of the worker
// with most sequences.
#include "paceline/nn/ops/experts.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/nn/ops/gelu.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

/// Rows by index; the index past the last row gives zeros.
at::Tensor rows_or_zeros(const at::Tensor& rows, const at::Tensor& index) {
  return at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}).index_select(0, index);
}

/// place [n, …] gets the products of left [n, …] and right [n, …].
void deliver_products(at::Tensor place, const at::Tensor& left, const at::Tensor& right, const Pass& pass) {
  if (place.scalar_type() != left.scalar_type()) deliver(place, at::bmm(left, right), pass);
  else if (pass.accumulate) place.baddbmm_(left, right);
  else at::bmm_out(place, left, right);
}

class Experts final : public Op {
 public:
  Experts(const graph::Layer& layer, const TensorAxis* workers)
      : experts_(layer.experts), top_(layer.experts_top), slots_(graph::expert_slots(layer)), balance_(layer.balance), workers_(workers) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    const std::int64_t sequences = x.size(0), most = most_sequences(sequences, pass), features = x.size(2);
    const at::Tensor rows = x.reshape({-1, features});
    const at::Tensor p = at::softmax(wide(at::mm(rows, weights.values[kGate].t())), -1);
    const auto [largest, chosen] = at::topk(p, top_, -1);  // [positions, top], the largest first
    const at::Tensor gates = top_ == 1 ? largest : largest / largest.sum(-1, true);
    const auto [place, from] = take_slots(chosen.view({sequences, x.size(1) * top_}), most);

    const at::Tensor got = to_experts(rows_or_zeros(rows, from.div(top_, "floor")), most);  // [own experts, slots of all, d]
    const at::Tensor hidden = at::baddbmm(weights.values[kBias1].unsqueeze(1), got, weights.values[kWeight1].transpose(1, 2));
    const at::Tensor active = gelu_values(hidden);
    const at::Tensor made = at::baddbmm(weights.values[kBias2].unsqueeze(1), active, weights.values[kWeight2].transpose(1, 2));
    const at::Tensor answers = rows_or_zeros(from_experts(made, most), place).view({-1, top_, features});
    saved = {rows, p, chosen, gates, place, from, got, hidden, active, answers};
    return (answers * gates.to(x.scalar_type()).unsqueeze(-1)).sum(1).view(x.sizes());
  }

  Tensors backward(const at::Tensor& given, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor &rows = saved[0], &p = saved[1], &chosen = saved[2], &gates = saved[3], &place = saved[4], &from = saved[5],
                     &got = saved[6], &hidden = saved[7], &active = saved[8], &answers = saved[9];
    const std::int64_t most = from.size(0) / (experts_ * slots_), features = rows.size(1);
    const at::Tensor gradient = given.reshape({-1, 1, features});

    // Through the experts.
    const at::Tensor of_answers = (gradient * gates.to(gradient.scalar_type()).unsqueeze(-1)).view({-1, features});  // [positions·top, d]
    const at::Tensor of_made = to_experts(rows_or_zeros(of_answers, from), most);
    const at::Tensor of_hidden = gelu_gradient(at::bmm(of_made, weights.values[kWeight2]), hidden);
    make_weight_gradients(pass, [of_made, of_hidden, active, got, places = weights.gradients](const Pass& then) {
      deliver_products(places[kWeight2], of_made.transpose(1, 2), active, then);
      deliver(places[kBias2], of_made.sum(1), then);
      deliver_products(places[kWeight1], of_hidden.transpose(1, 2), got, then);
      deliver(places[kBias1], of_hidden.sum(1), then);
    });

    // Through the gate.
    const at::Tensor of_gates = wide((gradient * answers).sum(-1));
    at::Tensor of_chosen = of_gates;
    if (top_ == 2) of_chosen = (of_gates - (of_gates * gates).sum(-1, true)) / p.gather(1, chosen).sum(-1, true);
    at::Tensor of_p = at::zeros_like(p).scatter_(1, chosen, of_chosen);
    if (balance_ > 0) of_p.add_(balance_gradient(p, chosen, given.size(1)), pass.weight * balance_);
    const at::Tensor of_logits = at::_softmax_backward_data(of_p, p, -1, p.scalar_type()).to(rows.scalar_type());
    make_weight_gradients(
        pass, [of_logits, rows, gate = weights.gradients[kGate]](const Pass& then) { deliver(gate, at::mm(of_logits.t(), rows), then); });
    if (!wants_input) return {at::Tensor()};
    const at::Tensor of_got = from_experts(at::bmm(of_hidden, weights.values[kWeight1]), most);
    at::Tensor input = rows_or_zeros(of_got, place).view({-1, top_, features}).sum(1);
    return {input.addmm_(of_logits, weights.values[kGate]).view(given.sizes())};
  }

 private:
  enum Weight : std::size_t { kGate, kWeight1, kBias1, kWeight2, kBias2 };

  /// The gate computes in full precision: 16 bits would change its decisions and its gradient.
  static at::Tensor wide(const at::Tensor& values) { return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat); }

  int workers() const { return workers_ ? workers_->size() : 1; }

  std::int64_t most_sequences(std::int64_t own, const Pass& pass) const {
    for (const Share& share : pass.shares)
      if (workers_) own = std::max(own, share.samples);
    return own;
  }

  /// For each choice [sequences, positions·top], its slot, or `none`, one past the last slot, if the expert was full. And the inverse: for
  /// each slot [experts·most·slots], its choice, or one past the last choice.
  std::pair<at::Tensor, at::Tensor> take_slots(const at::Tensor& chosen, std::int64_t most) const {
    const std::int64_t sequences = chosen.size(0), choices = chosen.numel(), none = experts_ * most * slots_;
    const at::Tensor takes = at::one_hot(chosen, experts_);  // [sequences, positions·top, experts]
    const at::Tensor before = (takes.cumsum(1) - takes).gather(2, chosen.unsqueeze(-1)).squeeze(-1);
    const at::Tensor sequence = at::arange(sequences, chosen.options()).unsqueeze(1);
    const at::Tensor slot = (chosen * most + sequence) * slots_ + before;
    const at::Tensor place = slot.masked_fill(before.ge(slots_), none).flatten();
    at::Tensor from = at::full({none + 1}, choices, chosen.options());
    from.scatter_(0, place, at::arange(choices, chosen.options()));
    return {place, from.narrow(0, 0, none).contiguous()};
  }

  /// All experts' slots [experts·most·slots, d] of this worker's sequences become this worker's experts' slots of all workers' sequences:
  /// [experts/W, W·most·slots, d].
  at::Tensor to_experts(const at::Tensor& slots, std::int64_t most) const {
    const std::int64_t own = experts_ / workers(), features = slots.size(1);
    if (!workers_) return slots.view({own, most * slots_, features});
    return workers_->exchange(slots).view({workers(), own, most * slots_, features}).transpose(0, 1).reshape({own, -1, features});
  }

  /// The way back.
  at::Tensor from_experts(const at::Tensor& slots, std::int64_t most) const {
    const std::int64_t own = experts_ / workers(), features = slots.size(2);
    if (!workers_) return slots.view({-1, features});
    return workers_->exchange(slots.view({own, workers(), most * slots_, features}).transpose(0, 1)).view({-1, features});
  }

  /// experts · f of the position's sequence: the derivative by p of the sum over positions of the balance loss.
  at::Tensor balance_gradient(const at::Tensor& p, const at::Tensor& chosen, std::int64_t positions) const {
    const at::Tensor first = at::one_hot(chosen.select(1, 0), experts_).view({-1, positions, experts_});
    return first.to(p.scalar_type()).mean(1, true).mul_(experts_).expand(first.sizes()).reshape(p.sizes());
  }

  std::int64_t experts_, top_, slots_;
  double balance_;
  const TensorAxis* workers_;  // null: all experts are here
};

}  // namespace

MadeOp make_experts(const graph::Layer& layer, bool) { return std::make_unique<Experts>(layer, nullptr); }
MadeOp make_spread_experts(const graph::Layer& layer, const TensorAxis* workers) { return std::make_unique<Experts>(layer, workers); }

}  // namespace paceline::nn

#include "paceline/nn/ops/tensor_parallel.h"

#include <ATen/ATen.h>

#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/ops/fused_rows.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

using graph::Form;
using graph::Kind;
using graph::Layout;

/// Wraps a layer of this rank's own channels or heads. In column form, its input is whole, and the ranks' gradients of it are summed. In
/// row form, its outputs are partial sums, which are added, and the bias is added once: in the first rank's product, or after the sum. If
/// the ranks share positions or samples between layers, these are gathered on the way in and scattered on the way out.
class TensorParallel final : public Op {
 public:
  struct Borders {
    bool enters = false;             // column form
    bool leaves = false;             // row form
    bool bias = false;               // row form: the last weight, which is added after the sum
    bool bias_within = false;        // row form: the last weight, which the layer adds
    bool alone = false;              // split by samples, without a partner: an all-to-all between channels and samples on its other side
    Layout between = Layout::whole;  // positions or samples, if ranks share those between layers
  };
  TensorParallel(std::unique_ptr<Op> local, const TensorAxis& axis, const Borders& borders)
      : local_(std::move(local)), axis_(axis), borders_(borders) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    at::Tensor out = local_->forward({brought_in(inputs[0], pass)}, of_local(weights), pass, saved);
    if (gathers_again()) saved[0] = inputs[0];  // fc and attention save their input first; all positions of it are gathered again
    out = brought_out(out, pass);
    return borders_.bias ? out.add_(as_channels(weights.values.back(), out)) : out;
  }

  Tensors backward(const at::Tensor& given, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor gradient = gradient_in(given, pass);
    if (borders_.bias)  // by samples: each worker computes the gradient of its own, as for all data-parallel weights
      make_weight_gradients(pass, [summed = samples() ? given : gradient, place = weights.gradients.back()](const Pass& then) {
        deliver(place, summed.sum(all_but_channels(summed)), then);
      });
    Tensors needed = saved;
    if (gathers_again()) needed[0] = axis_.gather_positions(saved[0]).flatten(0, 1);
    Tensors made = local_->backward(gradient, of_local(weights), pass, needed, wants_input);
    if (!wants_input) return made;
    return {gradient_out(made[0], pass)};
  }

 private:
  bool positions() const { return borders_.between == Layout::positions; }
  bool samples() const { return borders_.between == Layout::samples; }
  bool gathers_again() const { return borders_.enters && positions(); }

  at::Tensor brought_in(const at::Tensor& input, const Pass& pass) const {
    if (borders_.enters && positions()) return axis_.gather_positions(input);
    if (borders_.enters && samples()) return axis_.gather_samples(input, pass.shares);
    return borders_.leaves && borders_.alone ? axis_.to_channels(input, pass.shares) : input;
  }

  at::Tensor brought_out(const at::Tensor& output, const Pass& pass) const {
    if (borders_.leaves) return summed(output, pass);
    return borders_.enters && borders_.alone ? axis_.to_samples(output, pass.shares) : output;
  }

  at::Tensor gradient_in(const at::Tensor& given, const Pass& pass) const {
    if (borders_.leaves && positions()) return axis_.gather_positions(given);
    if (borders_.leaves && samples()) return axis_.gather_samples(given, pass.shares);
    return borders_.enters && borders_.alone ? axis_.to_channels(given, pass.shares) : given;
  }

  at::Tensor gradient_out(const at::Tensor& made, const Pass& pass) const {
    if (borders_.enters) return summed(made, pass);
    return borders_.alone ? axis_.to_samples(made, pass.shares) : made;
  }

  at::Tensor summed(const at::Tensor& partial, const Pass& pass) const {
    if (samples()) return axis_.scatter_samples(partial, pass.shares);
    return positions() ? axis_.scatter_positions(partial) : axis_.sum(partial);
  }

  Weights of_local(const Weights& weights) const {
    Weights local = weights;
    if (borders_.bias) local.values.pop_back(), local.gradients.pop_back();
    if (borders_.bias_within && axis_.rank() > 0) local.values.back() = no_bias(weights.values.back());
    return local;
  }

  at::Tensor no_bias(const at::Tensor& bias) const {
    if (!no_bias_.defined() || no_bias_.scalar_type() != bias.scalar_type()) no_bias_ = at::zeros_like(bias);
    return no_bias_;
  }

  static std::int64_t channel_dim(const at::Tensor& x) { return x.dim() == 4 ? 1 : x.dim() - 1; }
  static at::Tensor as_channels(const at::Tensor& bias, const at::Tensor& x) { return x.dim() == 4 ? bias.view({1, -1, 1, 1}) : bias; }
  static std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
    std::vector<std::int64_t> dims;
    for (std::int64_t dim = 0; dim < x.dim(); ++dim)
      if (dim != channel_dim(x)) dims.push_back(dim);
    return dims;
  }

  std::unique_ptr<Op> local_;
  const TensorAxis& axis_;
  Borders borders_;
  mutable at::Tensor no_bias_;  // zeros, on ranks that do not add it
};

/// Wraps a layer with whole weights that sees this rank's positions: its weights' gradients are summed over all positions.
class SummedGradients final : public Op {
 public:
  SummedGradients(std::unique_ptr<Op> local, const TensorAxis& axis) : local_(std::move(local)), axis_(axis) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    return local_->forward(inputs, weights, pass, saved);
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    Weights own = weights;
    for (at::Tensor& place : own.gradients) place = at::empty_like(place);
    Pass now = pass;
    now.accumulate = false, now.later = nullptr, now.put_off = nullptr;
    Tensors made = local_->backward(gradient, own, now, saved, wants_input);
    for (std::size_t i = 0; i < own.gradients.size(); ++i) deliver(weights.gradients[i], axis_.sum(own.gradients[i]), pass);
    return made;
  }

 private:
  std::unique_ptr<Op> local_;
  const TensorAxis& axis_;
};

class WholeSequences final : public Op {
 public:
  WholeSequences(std::unique_ptr<Op> op, const TensorAxis& axis) : op_(std::move(op)), axis_(axis) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    return own(op_->forward({axis_.gather_positions(inputs[0])}, weights, pass, saved));
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    Tensors made = op_->backward(axis_.gather_positions(gradient), weights, pass, saved, wants_input);
    if (wants_input) made.at(0) = own(made.at(0));
    return made;
  }

 private:
  at::Tensor own(const at::Tensor& sequences) const {
    const std::int64_t positions = sequences.size(1) / axis_.size();
    return sequences.narrow(1, axis_.rank() * positions, positions).contiguous();
  }

  std::unique_ptr<Op> op_;
  const TensorAxis& axis_;
};

/// The part of a dropout's mask for a rank's part of the activations.
MaskPart mask_part(const graph::Layer& whole, const graph::LayerSplit& how, const TensorAxis& axis) {
  const bool positions = how.output == Layout::positions;
  const std::size_t dim = positions || whole.output.size() == 3 ? 0 : whole.output.size() - 1;  // without the batch
  const graph::Slice::Run run = graph::part_of(whole.output[dim], axis.size(), axis.rank());
  return {.dim = static_cast<std::int64_t>(dim) + 1, .all = whole.output[dim], .first = run.first, .count = run.count};
}

}  // namespace

std::unique_ptr<Op> make_tensor_parallel_op(const graph::Graph& graph, const graph::TensorSplit& split, std::size_t layer,
                                            const TensorAxis& axis, bool in_place) {
  const graph::Layer& whole = graph.layers()[layer];
  const graph::LayerSplit& how = split.layers[layer];
  graph::Layer local = graph::local_layer(graph, split, layer, axis.rank());
  if (whole.kind == Kind::embedding && how.form == Form::row)
    return make_embedding_part(whole, graph::part_of(whole.vocabulary, axis.size(), axis.rank()), axis, split.sequence);
  if (whole.kind == Kind::dropout && (how.output == Layout::channels || how.output == Layout::positions))
    return make_dropout_part(whole, mask_part(whole, how, axis), split.hybrid ? std::optional(layer) : std::nullopt);
  const bool leaves = how.form == Form::row || how.form == Form::both, enters = how.form == Form::column || how.form == Form::both;
  // By samples: each worker computes the bias's gradient from its own samples, which the layer does not see separately.
  const bool within = leaves && whole.bias && !split.hybrid && (how.form == Form::both || whole.kind == Kind::fc);
  const TensorParallel::Borders borders{.enters = enters,
                                        .leaves = leaves,
                                        .bias = leaves && whole.bias && !within,
                                        .bias_within = within,
                                        .alone = how.input == Layout::samples && how.output == Layout::samples,
                                        .between = split.hybrid     ? Layout::samples
                                                   : split.sequence ? Layout::positions
                                                                    : Layout::whole};
  if (how.form == Form::both)
    return std::make_unique<TensorParallel>(make_attention_part(whole, graph::part_of(whole.heads, axis.size(), axis.rank()), within), axis,
                                            borders);
  if (leaves && !within) local.bias = false;
  std::unique_ptr<Op> op = op_kind(whole.kind).make(local, in_place);
  if (enters || leaves) return std::make_unique<TensorParallel>(std::move(op), axis, borders);
  return how.sums_gradients ? std::make_unique<SummedGradients>(std::move(op), axis) : std::move(op);
}

std::unique_ptr<Op> make_tensor_parallel_fc_and_gelu(const TensorAxis& axis) {
  return std::make_unique<TensorParallel>(make_fc_and_gelu(), axis, TensorParallel::Borders{.enters = true});
}

std::unique_ptr<Op> with_whole_sequences(std::unique_ptr<Op> op, const TensorAxis& axis) {
  return std::make_unique<WholeSequences>(std::move(op), axis);
}

}  // namespace paceline::nn

// The forward and backward pass of a GraphModule over a range of its units.
#include <ATen/ATen.h>

#include <utility>

#include "paceline/base/error.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

/// Gradients on their way into the arena. On a GPU they are copied in groups, to save launches, and `ready` is called afterwards.
class Deliveries {
 public:
  Deliveries(const Pass& pass, const GradientReady& ready, bool in_groups, bool tied) : pass_(pass), ready_(ready), in_groups_(in_groups) {
    if (in_groups_) pass_.later = &copies_;
    pass_.table_begun = tied;
  }

  const Pass& pass() const { return pass_; }
  /// If not null, gradients of weights are not computed but put off there.
  void put_off_to(std::vector<PutOff>* place) { pass_.put_off = place; }

  void layer_done(std::size_t first_entry, std::size_t last_entry) {
    if (first_entry == last_entry) return;
    waiting_.emplace_back(first_entry, last_entry);
    for (; counted_ < copies_.size(); ++counted_) elements_ += copies_[counted_].place.numel();
    if (!in_groups_ || (ready_ && elements_ >= kGroup)) flush();
  }

  void flush() {
    if (!copies_.empty()) tensor::copy_together(copies_, pass_.accumulate);
    if (ready_)
      for (const auto& [first, last] : waiting_) ready_(first, last);
    copies_.clear(), waiting_.clear();
    counted_ = 0, elements_ = 0;
  }

 private:
  static constexpr std::int64_t kGroup = 1 << 20;  // elements: early enough to overlap with the rest of the pass

  Pass pass_;
  const GradientReady& ready_;
  bool in_groups_;
  std::vector<tensor::BatchedCopy> copies_;
  std::vector<std::pair<std::size_t, std::size_t>> waiting_;
  std::size_t counted_ = 0;
  std::int64_t elements_ = 0;
};

/// Leaves running statistics unchanged while layers are recomputed.
class StatisticsStay {
 public:
  ~StatisticsStay() {
    for (const auto& [place, value] : before_) at::Tensor(place).copy_(value);
  }
  StatisticsStay() = default;
  StatisticsStay(const StatisticsStay&) = delete;
  StatisticsStay& operator=(const StatisticsStay&) = delete;

  void add(const Tensors& statistics) {
    for (const at::Tensor& statistic : statistics) before_.emplace_back(statistic, statistic.clone());
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

/// A layer's masks depend only on its micro-batch and its position in the network, not on which layers a rank computes before it; and they
/// are the same when it is recomputed.
void begin_stream(const Pass& pass, std::size_t layer) {
  if (pass.masks && pass.training) pass.masks->seed(chance_of(pass.chance, layer));
}

at::Tensor no_samples(const graph::Layer& layer, const at::TensorOptions& options) {
  graph::Shape shape = layer.output;
  shape.insert(shape.begin(), 0);
  return at::empty(shape, options);
}

}  // namespace

std::vector<Share> GraphModule::ask_shares(std::int64_t samples) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(spread_->size()), 0);
  counts[static_cast<std::size_t>(spread_->rank())] = samples;
  spread_->run(comm::all_gather(counts));
  std::vector<Share> shares;
  for (const std::int64_t count : counts) shares.push_back({.samples = count});
  return shares;
}

/// The backward pass of a layer that had no samples.
void GraphModule::skip_back(const Node& node, const Pass& pass, Tensors& inputs) const {
  make_weight_gradients(pass, [places = node.weights.gradients](const Pass& then) {
    for (const at::Tensor& place : places)
      if (!then.accumulate) at::Tensor(place).zero_();
  });
  const at::TensorOptions options = arena_.parameters().options().dtype(compute_);
  for (const int source : node.inputs) inputs.push_back(no_samples(graph_.layers()[static_cast<std::size_t>(source)], options));
}

/// The gradient of a node's input so far, from the input's other readers; the node adds its own.
at::Tensor GraphModule::take_others(const Node& node, Tensors& gradients) {
  if (node.sum >= 0) return std::exchange(gradients[static_cast<std::size_t>(node.sum)], {});
  return node.inputs.size() == 1 ? std::exchange(gradients[static_cast<std::size_t>(node.inputs[0])], {}) : at::Tensor();
}

Tensors GraphModule::run(Units range, Tensors inputs, const Pass& given, Trace* trace, const Visit& visit) {
  at::NoGradGuard no_grad;
  if (spread_ && given.shares.empty()) {
    ensure(range.first == 0, "a pass that begins in the middle of the network knows the workers' shares");
    Pass pass = given;
    pass.shares = ask_shares(inputs.at(0).size(0));
    return run(range, std::move(inputs), pass, trace, visit);
  }
  const Pass& pass = given;
  ensure(!spread_ || range.first > 0 || inputs.at(0).size(0) == pass.shares.at(static_cast<std::size_t>(spread_->rank())).samples,
         "a worker's samples are those of its share");
  for (std::size_t unit = range.first; unit < range.last; ++unit) ensure(holds(unit), "a rank computes the units that it holds");
  std::vector<at::Tensor> outputs(nodes_.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) outputs[static_cast<std::size_t>(crossing_[range.first].at(k))] = std::move(inputs[k]);
  if (range.first == 0) {
    at::Tensor& input = outputs[0];
    if (input.is_floating_point()) input = input.to(compute_);
    if (channels_last_ && input.dim() == 4) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  }
  if (trace) trace->begin(nodes_.size(), units_.size(), range);
  StatisticsStay stay;
  for (std::size_t i = begins_[range.first]; pass.again && i < begins_[range.last]; ++i) stay.add(nodes_[i].weights.statistics);
  Tensors unused;
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    pass.call(&UnitHooks::before_forward, unit);
    for (std::size_t i = begins_[unit]; i < begins_[unit + 1]; ++i) {
      if (!nodes_[i].op) continue;
      if (nodes_[i].draws) begin_stream(pass, i);
      inputs.clear();
      for (int source : nodes_[i].inputs) inputs.push_back(outputs[static_cast<std::size_t>(source)]);
      if (spread_ && inputs[0].size(0) == 0 && !nodes_[i].exchanges)
        outputs[i] = no_samples(graph_.layers()[i], arena_.parameters().options().dtype(compute_));
      else outputs[i] = nodes_[i].op->forward(inputs, nodes_[i].weights, pass, trace ? trace->saved[i] : unused);
      if (const int sum = nodes_[i].sum; sum >= 0 && last_use_[static_cast<std::size_t>(sum)] > static_cast<int>(i))
        outputs[static_cast<std::size_t>(sum)] = (trace ? trace->saved[i] : unused)[0];
      if (visit) visit(i, outputs[i]);
      for (int source : nodes_[i].inputs)
        if (last_use_[static_cast<std::size_t>(source)] == static_cast<int>(i)) outputs[static_cast<std::size_t>(source)].reset();
    }
    pass.call(&UnitHooks::after_forward, unit);
  }
  Tensors results;
  for (const int layer : crossing_[range.last]) results.push_back(outputs[static_cast<std::size_t>(layer)]);
  return results;
}

Tensors GraphModule::back(Units range, Tensors output_gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                          const GradientReady& ready) {
  at::NoGradGuard no_grad;
  trace.use_up(range);
  const GradientReady nobody;
  const int tied = graph_.tied();
  Deliveries deliveries(pass, wanted.weights ? ready : nobody, device_.is_cuda(), holds_tied());
  std::vector<at::Tensor> gradients(nodes_.size());
  for (std::size_t k = 0; k < output_gradients.size(); ++k)
    gradients[static_cast<std::size_t>(crossing_[range.last].at(k))] = std::move(output_gradients[k]);
  for (std::size_t unit = range.last; unit-- > range.first;) {
    pass.call(&UnitHooks::before_backward, unit);
    deliveries.put_off_to(wanted.weights ? nullptr : &trace.later[unit]);
    for (std::size_t i = begins_[unit + 1]; i-- > begins_[unit];) {
      Node& node = nodes_[i];
      if (!gradients[i].defined() || !node.op) continue;  // nothing before it is trained: the flatten in front of a perceptron
      const Tensors saved = std::exchange(trace.saved[i], {});
      if (node.draws) begin_stream(deliveries.pass(), i);  // attention draws its masks again
      Tensors inputs;
      const bool wants_input = node.wants_input || wanted.inputs;
      if (spread_ && gradients[i].size(0) == 0 && !node.exchanges) skip_back(node, deliveries.pass(), inputs);
      else if (const at::Tensor onto = wants_input ? take_others(node, gradients) : at::Tensor(); onto.defined())
        inputs = node.op->backward_onto(gradients[i], onto, node.weights, deliveries.pass(), saved);
      else inputs = node.op->backward(gradients[i], node.weights, deliveries.pass(), saved, wants_input);
      gradients[i].reset();
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (!inputs[k].defined()) continue;
        at::Tensor& sum = gradients[static_cast<std::size_t>(node.inputs[k])];
        sum = sum.defined() ? sum + inputs[k] : inputs[k];  // never in place: add passes the same tensor to both of its inputs
      }
      deliveries.layer_done(node.first_entry, node.last_entry);
      if (static_cast<int>(i) == tied) deliveries.flush();  // the embedding adds to it
    }
    if (pass.hooks) deliveries.flush();  // a hook may release the unit's memory
    pass.call(&UnitHooks::after_backward, unit);
  }
  deliveries.flush();
  Tensors results;
  for (const int layer : crossing_[range.first]) results.push_back(gradients[static_cast<std::size_t>(layer)]);
  return results;
}

void GraphModule::weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) {
  at::NoGradGuard no_grad;
  Deliveries deliveries(pass, ready, device_.is_cuda(), holds_tied());
  for (std::size_t unit = range.last; unit-- > range.first;) {
    for (const PutOff& make : std::exchange(trace.later.at(unit), {})) make(deliveries.pass());
    if (units_[unit].borrows) deliveries.flush();
    deliveries.layer_done(units_[unit].first_entry, units_[unit].last_entry);
  }
  deliveries.flush();
}

void GraphModule::sit_out_back(Units range, const Pass& pass, const GradientReady& ready) {
  const int head = graph_.tied();
  if (table_gradient_ && !pass.accumulate && range.first <= unit_of(head) && unit_of(head) < range.last)
    nodes_[static_cast<std::size_t>(head)].weights.gradients[0].zero_();
  Model::sit_out_back(range, pass, ready);
}

}  // namespace paceline::nn

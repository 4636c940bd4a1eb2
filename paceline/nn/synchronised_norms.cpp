#include "paceline/nn/synchronised_norms.h"

#include <ATen/ATen.h>
#include <ATen/ops/batch_norm_compositeimplicitautograd_dispatch.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/version.h>

#include "paceline/base/error.h"

namespace paceline::nn {
namespace {

#if TORCH_VERSION_MAJOR >= 2
using MaybeTensor = std::optional<at::Tensor>;
#else
using MaybeTensor = c10::optional<at::Tensor>;
#endif

/// Placed among the gradient hooks of a running mean, which has no gradient: the one place where a tensor can carry our data through
/// set_data() and torch::load().
class Mark final : public torch::autograd::FunctionPreHook {
 public:
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override { return gradients; }

  std::weak_ptr<const SynchronisedNorms::Norm> norm;
};

Mark* mark_of(const at::Tensor& running_mean) {
  if (!torch::autograd::impl::get_autograd_meta(running_mean)) return nullptr;  // without it, LibTorch 2 has no hooks
  for (const auto& hook : torch::autograd::impl::hooks(running_mean))
    if (auto* mark = dynamic_cast<Mark*>(hook.get())) return mark;
  return nullptr;
}

/// One call of a norm, kept from its forward to its backward pass.
struct NormCall final : torch::CustomClassHolder {
  std::shared_ptr<const SynchronisedNorms::Norm> norm;
  NormTensors tensors;
};

class JointBatchNorm final : public torch::autograd::Function<JointBatchNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& scale,
                            const at::Tensor& shift, const c10::intrusive_ptr<NormCall>& call) {
    call->tensors.scale = scale, call->tensors.shift = shift;
    const JointNorm joint = joint_norm(input, call->tensors, call->norm->sum, call->norm->name);
    call->tensors = {};
    context->save_for_backward({input, scale, joint.mean, joint.inverse_deviation, joint.count});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return joint.output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<NormCall>(context->saved_data["call"].toCapsule());
    if (at::GradMode::is_enabled())
      throw ConfigError(
          fmt::format("batch norm '{}' is synchronised among workers, so its backward pass cannot be differentiated again (create_graph); "
                      "leave synchronise_norms off, or use a norm without batch statistics there",
                      call->norm->name));
    const auto saved = context->get_saved_variables();
    const JointNorm joint{{}, saved[2], saved[3], saved[4]};
    const JointNormGradients made = joint_norm_gradients(gradients[0], saved[0], saved[1], joint, call->norm->sum);
    const auto type = saved[1].scalar_type();
    return {made.input, made.scale.to(type), made.shift.to(type), at::Tensor()};
  }
};

/// Called before LibTorch's torch::batch_norm.
at::Tensor batch_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias, const MaybeTensor& running_mean,
                      const MaybeTensor& running_var, bool training, double momentum, double eps, bool cudnn_enabled) {
  const Mark* mark = training && running_mean.has_value() && running_mean->defined() ? mark_of(*running_mean) : nullptr;
  const auto norm = mark ? mark->norm.lock() : nullptr;
  if (!norm)
    return at::compositeimplicitautograd::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                                     cudnn_enabled);
  auto call = c10::make_intrusive<NormCall>();
  call->norm = norm;
  call->tensors = {{}, {}, *running_mean, running_var.value(), momentum, eps};
  // A Function does not accept undefined tensors.
  const auto or_else = [&](const MaybeTensor& tensor, double value) {
    return tensor.has_value() && tensor->defined() ? *tensor : at::full_like(*running_mean, value);
  };
  return JointBatchNorm::apply(input, or_else(weight, 1), or_else(bias, 0), call);
}

/// Once per process, since its decision depends on the tensors. It is never unregistered: a destructor might run after LibTorch's tables
/// are gone.
void register_kernel() {
  const auto library = [](c10::DispatchKey key) {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    made->impl("batch_norm", TORCH_FN(batch_norm));
    return made;
  };
  [[maybe_unused]] static const auto *cpu = library(c10::DispatchKey::AutogradCPU), *cuda = library(c10::DispatchKey::AutogradCUDA);
}

template <class... Kinds>
const at::Tensor* running_mean_of(const torch::nn::Module& module) {
  const at::Tensor* found = nullptr;
  const auto look = [&](const auto* norm) {
    if (norm) found = &norm->running_mean;
  };
  (look(module.as<Kinds>()), ...);
  return found;
}

}  // namespace

SynchronisedNorms::SynchronisedNorms(torch::nn::Module& module, const SumOverWorkers& sum) {
  register_kernel();
  add(module, "", sum);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) add(*item.value(), item.key(), sum);
}

void SynchronisedNorms::add(const torch::nn::Module& part, const std::string& name, const SumOverWorkers& sum) {
  using namespace torch::nn;
  const at::Tensor* running_mean = running_mean_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl>(part);
  if (!running_mean) return;
  if (!running_mean->defined())
    throw ConfigError(
        fmt::format("batch norm '{}' keeps no running statistics, without which it cannot be synchronised; make it with "
                    "track_running_stats(true)",
                    name));
  if (!mark_of(*running_mean)) torch::autograd::impl::add_hook(*running_mean, std::make_unique<Mark>());
  norms_.push_back(std::make_shared<const Norm>(Norm{name, sum}));
  mark_of(*running_mean)->norm = norms_.back();
}

}  // namespace paceline::nn

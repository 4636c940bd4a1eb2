#include "paceline/pipeline/borders.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::pipeline {
namespace {

constexpr std::int64_t kHeader = 128;  // numbers that announce what crosses a border

/// A contiguous tensor, in whatever dimension order, as one row.
at::Tensor flat(const at::Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies());
}

}  // namespace

bool Borders::Message::done() const {
  return std::ranges::all_of(works, [](const comm::Work& work) { return work.done(); });
}

// The receiver may take the last gradients of the last step only when it is already leaving. A rank that is gone is detected by the work
// itself. After an error nobody may take them: the receiver may wait in its turn for what this rank sends no more.
Borders::~Borders() {
  constexpr Nanoseconds kPatience = std::chrono::seconds(30), kNap = std::chrono::microseconds(200);
  const auto waits = [this] {
    forget_done();
    return !in_flight_.empty();
  };
  if (std::uncaught_exceptions() == 0 && waits())
    for (const Nanoseconds began = clock_.now(); waits() && clock_.now() - began < kPatience;) std::this_thread::sleep_for(kNap);
  abandon();
}

void Borders::abandon() {
  for (auto* const messages : {&posted_, &in_flight_}) {
    for (const Message& message : *messages)
      for (const comm::Work& work : message.works) work.abandon();
    messages->clear();
  }
  expected_.clear();
}

Borders::Form Borders::form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<std::int64_t>(tensor.scalar_type()), tensor.sizes().vec(), tensor.strides().vec()};
}

at::Tensor Borders::written(const Forms& forms) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(forms.size())};
  for (const Form& form : forms) {
    numbers.push_back(form.type), numbers.push_back(std::ssize(form.sizes));
    numbers.insert(numbers.end(), form.sizes.begin(), form.sizes.end());
    numbers.insert(numbers.end(), form.strides.begin(), form.strides.end());
  }
  if (std::ssize(numbers) > kHeader)
    throw ConfigError(fmt::format(
        "{} tensors cross a border of the pipeline, which is too many; cut the model elsewhere, with fewer skip connections across units",
        forms.size()));
  numbers.resize(kHeader, 0);
  return at::tensor(numbers, at::kLong);
}

Borders::Forms Borders::read(const at::Tensor& header) {
  const at::Tensor host = header.cpu();
  const auto* next = host.data_ptr<std::int64_t>();
  Forms forms(static_cast<std::size_t>(*next++));
  for (Form& form : forms) {
    form.type = *next++;
    const std::int64_t dims = *next++;
    form.sizes.assign(next, next + dims), next += dims;
    form.strides.assign(next, next + dims), next += dims;
  }
  return forms;
}

void Borders::start_send(Message& message, const Crossing& crossing, const at::Tensor& tensor) {
  const at::Tensor row = flat(tensor);
  // The receiver takes it when it gets there, and may compute for long before; that it is gone is detected all the same.
  message.works.push_back(comm_.start(comm::send(row, crossing.message.peer, tag_of(crossing), {.deadline = comm::kUntilTheEnd})));
  message.tensors.push_back(row);
  bytes_sent_ += row.numel() * row.element_size();
}

void Borders::send(const Crossing& crossing, const nn::Tensors& tensors) {
  forget_done();
  Message message;
  Forms forms;
  nn::Tensors dense;
  for (const at::Tensor& tensor : tensors) {
    dense.push_back(tensor.defined() && !tensor.is_non_overlapping_and_dense() ? tensor.contiguous() : tensor);
    forms.push_back(form_of(dense.back()));
  }
  const auto [announced, first] = sends_.try_emplace(key_of(crossing), forms);
  if (first) start_send(message, crossing, written(forms).to(device_));
  else if (announced->second != forms)
    throw ConfigError(
        fmt::format("what crosses border {} of the pipeline has another shape than for earlier micro-batches of {} samples; a pipeline "
                    "needs a model whose shapes depend only on the number of samples",
                    crossing.message.border, crossing.samples));
  for (const at::Tensor& tensor : dense)
    if (tensor.defined() && tensor.numel() > 0) start_send(message, crossing, tensor);
  in_flight_.push_back(std::move(message));
}

void Borders::forget_done() {
  while (!in_flight_.empty() && in_flight_.front().done()) in_flight_.pop_front();
}

void Borders::expect(const std::vector<Crossing>& crossings) {
  ensure(expected_.empty(), "everything that was expected before has been taken");
  expected_.assign(crossings.begin(), crossings.end());
}

void Borders::receive_ahead() {
  if (!posted_.empty() || expected_.empty()) return;
  if (const auto known = receives_.find(key_of(expected_.front())); known != receives_.end()) post(known->second);
}

std::int64_t Borders::bytes_of(const Forms& forms) {
  std::int64_t bytes = 0;
  for (const Form& form : forms)
    if (form.type >= 0) bytes += product(form.sizes) * static_cast<std::int64_t>(c10::elementSize(static_cast<at::ScalarType>(form.type)));
  return bytes;
}

void Borders::post(const Forms& forms) {
  const Crossing& crossing = expected_.front();
  Message& message = posted_.emplace_back();
  message.memory = tensor::TravellingBytes(bytes_of(forms));
  for (const Form& form : forms) {
    at::Tensor& tensor = message.tensors.emplace_back();
    if (form.type < 0) continue;
    const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(form.type)).device(device_);
    tensor = at::empty_strided(form.sizes, form.strides, options);
    if (tensor.numel() > 0) message.works.push_back(comm_.start(comm::receive(flat(tensor), crossing.message.peer, tag_of(crossing))));
  }
}

Borders::Forms Borders::receive_forms(const Crossing& crossing) {
  const at::Tensor header = at::zeros({kHeader}, at::TensorOptions().dtype(at::kLong).device(device_));
  comm_.run(comm::receive(header, crossing.message.peer, tag_of(crossing)));
  return read(header);
}

nn::Tensors Borders::take() {
  const at::NoGradGuard no_grad;
  const Nanoseconds began = clock_.now();
  receive_ahead();
  if (posted_.empty()) {
    const Forms forms = receive_forms(expected_.front());
    receives_[key_of(expected_.front())] = forms;
    post(forms);
  }
  for (const comm::Work& work : posted_.front().works) work.wait();
  waited_s_ += seconds(clock_.now() - began);
  nn::Tensors tensors = std::move(posted_.front().tensors);
  posted_.pop_front(), expected_.pop_front();
  return tensors;
}

}  // namespace paceline::pipeline

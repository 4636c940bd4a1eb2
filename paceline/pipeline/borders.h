// The tensors that cross the borders of a rank's stages: activations one way, their gradients the other.
//
// Sends run in the background, and the next message is received while the rank computes with the current one. The tensors that cross a
// border have the same form (shapes and types) for every micro-batch with this many samples, so the form is sent once, in a message before
// the first one. Each border and direction has a tag, and messages with one tag keep their order.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/comm/communicator.h"
#include "paceline/nn/op.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::pipeline {

/// A message with the number of samples in its micro-batch.
struct Crossing {
  schedule::PipelineMessage message;
  std::int64_t samples = 0;
};

class Borders {
 public:
  /// `comm`: the pipeline's axis. All that is passed must outlive it.
  Borders(comm::Communicator& comm, const c10::Device& device, const Clock& clock) : comm_(comm), device_(device), clock_(clock) {}
  /// Waits, for a limited time, for sends that the receiver has not taken yet; while an exception unwinds, abandons them at once.
  ~Borders();
  Borders(const Borders&) = delete;
  Borders& operator=(const Borders&) = delete;

  /// Announces everything that will be taken, in order.
  void expect(const std::vector<Crossing>& crossings);
  /// Begins to receive the next of them, if its form is known, while the caller computes. Its deadline starts now.
  void receive_ahead();
  /// Returns the next of them. Throws PeerError if the other side is gone, or sends nothing within the deadline.
  nn::Tensors take();
  void send(const Crossing& crossing, const nn::Tensors& tensors);
  /// Frees what has been sent. The last messages of a pass would otherwise be kept until the next one sends something.
  void forget_done();
  /// After an error: cancels what is in flight, so that its memory can be freed.
  void abandon();

  double waited_s() const { return waited_s_; }  // inside take()
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  /// Shape and type of a tensor; the type is −1 if there is no tensor.
  struct Form {
    std::int64_t type = -1;
    std::vector<std::int64_t> sizes, strides;
    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<int, bool, std::int64_t>;  // border, direction, samples
  struct Message {
    tensor::TravellingBytes memory;  // of what arrives; what is sent belongs to the pass, which may keep it
    nn::Tensors tensors;             // kept until the works are done
    std::vector<comm::Work> works;
    bool done() const;
  };

  static Key key_of(const Crossing& crossing) { return {crossing.message.border, crossing.message.gradients, crossing.samples}; }
  static int tag_of(const Crossing& crossing) { return 2 * crossing.message.border + (crossing.message.gradients ? 1 : 0); }
  static Form form_of(const at::Tensor& tensor);
  static at::Tensor written(const Forms& forms);
  static Forms read(const at::Tensor& header);
  static std::int64_t bytes_of(const Forms& forms);

  void start_send(Message& message, const Crossing& crossing, const at::Tensor& tensor);
  Forms receive_forms(const Crossing& crossing);
  void post(const Forms& forms);  // posts the receive of the first expected crossing

  comm::Communicator& comm_;
  c10::Device device_;
  const Clock& clock_;
  std::map<Key, Forms> sends_, receives_;  // the announced forms, by border, direction and samples
  std::deque<Crossing> expected_;          // not yet taken; the receive of the first one is in posted_ if that is not empty
  std::deque<Message> posted_;
  std::deque<Message> in_flight_;  // sends
  double waited_s_ = 0;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace paceline::pipeline

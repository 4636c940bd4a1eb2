// The tensors that cross the borders of a rank's stages: activations one way, their gradients the other.
//
// A send is started and left to itself, and the next message is received while the present one is computed with. What crosses a border has
// the same form for every micro-batch of this many samples, so it is announced once, in a message before the first; from then on both sides
// know it. A border and direction is a tag, whose messages keep their order.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/nn/op.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::pipeline {

/// A message with the number of samples in its micro-batch.
struct Crossing {
  schedule::PipelineMessage message;
  std::int64_t samples = 0;
};

class Borders {
 public:
  /// `comm`: the pipeline's axis.
  Borders(comm::Communicator& comm, const c10::Device& device) : comm_(comm), device_(device) {}
  /// Waits for sends that nobody has taken yet, but not forever.
  ~Borders();
  Borders(const Borders&) = delete;
  Borders& operator=(const Borders&) = delete;

  /// All that will be taken, in its order.
  void expect(const std::vector<Crossing>& crossings);
  /// Begins to receive the next of them, where its form is known, while the caller computes. Its deadline runs from here on.
  void receive_ahead();
  /// The next of them. Throws PeerError if the other side is gone, or sends nothing within the deadline.
  nn::Tensors take();
  void send(const Crossing& crossing, const nn::Tensors& tensors);
  /// After an error: gives up what is in flight, so that its memory may go.
  void abandon();

  double waited_s() const { return waited_s_; }  // in take()
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  /// What a tensor looks like; of one that is not there the type is −1.
  struct Form {
    std::int64_t type = -1;
    std::vector<std::int64_t> sizes, strides;
    bool operator==(const Form&) const = default;
  };
  using Forms = std::vector<Form>;
  using Key = std::tuple<int, bool, std::int64_t>;  // border, direction, samples
  struct Message {
    nn::Tensors tensors;  // kept until the works are done
    std::vector<comm::Work> works;
    bool done() const;
  };

  static Key key_of(const Crossing& crossing) { return {crossing.message.border, crossing.message.gradients, crossing.samples}; }
  static int tag_of(const Crossing& crossing) { return 2 * crossing.message.border + (crossing.message.gradients ? 1 : 0); }
  static Form form_of(const at::Tensor& tensor);
  static at::Tensor written(const Forms& forms);
  static Forms read(const at::Tensor& header);

  void start_send(Message& message, const Crossing& crossing, const at::Tensor& tensor);
  Forms receive_forms(const Crossing& crossing);
  void post(const Forms& forms);  // the receive of the first that is expected
  void forget_done();

  comm::Communicator& comm_;
  c10::Device device_;
  std::map<Key, Forms> sends_, receives_;  // by what they are of: the form that was announced
  std::deque<Crossing> expected_;          // not yet taken; the first is posted where posted_ is not empty
  std::deque<Message> posted_;
  std::deque<Message> under_way_;  // sends
  double waited_s_ = 0;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace paceline::pipeline

// Workers that train one replica each in a user's own loop, and combine them after their steps: any torch::nn::Module, any torch::optim.
//
//   paceline::LocalSgd average(*model, *comm, {.period = 8});      // before the optimizer is made
//   …
//   loss.backward();
//   optimizer.step();
//   average.step();                                                // one call per step, on all workers
//   …
//   { const paceline::Replica::Agreed agreed(average); … }         // evaluate or save what the workers agree on
//
// The meetings are those of the strategies local_sgd, easgd, diloco and gossip (meeting.h). The parameters move into an arena whose memory
// the workers share, as DataParallel's do, and start with worker 0's values. Optimizer state stays local to each worker.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/data_parallel/meeting_options.h"

namespace paceline {

namespace data_parallel {
class Meeting;
struct MeetingSetup;
}  // namespace data_parallel
namespace tensor {
class Arena;
}

class Replica {
 public:
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// Call it after the optimizer's step. Collective: all workers make the same number of steps.
  void step();
  /// Epochs done, with fractions; post-local SGD meets more often in the first ones.
  void set_epoch(double epoch);

  /// While it exists, the module has what the workers agree on: the mean of their parameters (for ElasticAveraging, the centre) and of
  /// their running statistics. Afterwards each worker has its own again. Creating one is collective.
  class Agreed {
   public:
    explicit Agreed(Replica& replica);
    ~Agreed();
    Agreed(const Agreed&) = delete;
    Agreed& operator=(const Agreed&) = delete;

   private:
    Replica& replica_;
  };

  tensor::Arena& arena();
  std::int64_t bytes_sent() const;

 protected:
  using MakeMeeting = std::function<std::unique_ptr<data_parallel::Meeting>(const data_parallel::MeetingSetup&)>;
  /// Collective. Module and communicator outlive it. `who`: the class's name, for messages.
  Replica(torch::nn::Module& module, comm::Communicator& comm, const std::string& who, std::uint64_t seed, const MakeMeeting& make);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Every `period` steps, all replicas are replaced by their mean.
class LocalSgd : public Replica {
 public:
  using Options = data_parallel::LocalSgdOptions;
  LocalSgd(torch::nn::Module& module, comm::Communicator& comm, Options options = {});
};

/// Every `period` steps replicas and a centre attract each other (EASGD).
class ElasticAveraging : public Replica {
 public:
  using Options = data_parallel::ElasticOptions;
  ElasticAveraging(torch::nn::Module& module, comm::Communicator& comm, Options options = {});
};

/// Every `period` steps, the replicas' progress serves as the gradient of an outer Nesterov step.
class DiLoCo : public Replica {
 public:
  using Options = data_parallel::DiLoCoOptions;
  DiLoCo(torch::nn::Module& module, comm::Communicator& comm, Options options = {});
};

/// After every step, each replica is averaged with that of one random neighbour. The module is on the CPU.
class Gossip : public Replica {
 public:
  Gossip(torch::nn::Module& module, comm::Communicator& comm, std::uint64_t seed = 0);
};

}  // namespace paceline

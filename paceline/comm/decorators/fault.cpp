#include <fmt/format.h>

#include "paceline/comm/decorators/decorators.h"

namespace paceline::comm {
namespace {

class Fault final : public Decorator {
 public:
  Fault(std::unique_ptr<Communicator> communicator, std::int64_t operation) : Decorator(std::move(communicator)), fails_at_(operation) {}

  Work start(const Operation& operation) override {
    count(operation);
    return inner().start(operation);
  }
  void run(const Operation& operation) override {
    count(operation);
    inner().run(operation);
  }

 private:
  void count(const Operation& operation) {
    if (++operations_ == fails_at_)
      throw Error(fmt::format("rank {} fails in {}, its operation {}, as comm.fail_at says", rank(), describe(operation), fails_at_));
  }

  std::int64_t fails_at_, operations_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> fault(std::unique_ptr<Communicator> inner, int rank, std::int64_t operation) {
  if (inner->rank() != rank) return inner;
  return std::make_unique<Fault>(std::move(inner), operation);
}

}  // namespace paceline::comm

#include "paceline/comm/solo.h"

#include <cstring>

#include "paceline/comm/gpu.h"
#include "paceline/comm/validate.h"

namespace paceline::comm {
namespace {

class Solo final : public Communicator {
 public:
  explicit Solo(Communicator& among) : among_(among) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  Topology topology() const override { return {}; }
  std::string engine() const override { return among_.engine(); }
  int name_in_run(int) const override { return among_.name_in_run(among_.rank()); }
  std::unique_ptr<Communicator> split(int, int) override { return solo(among_); }
  Memory allocate(std::int64_t bytes) override { return among_.allocate(bytes); }

  Work start(const Operation& operation) override {
    run(operation);
    return {};
  }
  void run(const Operation& op) override {
    validate(op, 0, 1);
    if (op.is_collective() && !op.algorithm.empty() && op.algorithm != "auto") schedule::algorithm_for(op.algorithm, op.collective());
    if (op.kind != Operation::Kind::all_to_all || op.buffer.count == 0) return;  // any other operation leaves its only buffer unchanged
    if (op.buffer.on_gpu) gpu::copy(op.buffer.data, op.input.data, op.buffer.bytes(), op.buffer.stream);
    else std::memcpy(op.buffer.data, op.input.data, static_cast<std::size_t>(op.buffer.bytes()));
  }

 private:
  Communicator& among_;
};

}  // namespace

std::unique_ptr<Communicator> solo(Communicator& among) { return std::make_unique<Solo>(among); }

}  // namespace paceline::comm

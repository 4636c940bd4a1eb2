#include <fmt/format.h>

#include "paceline/comm/decorators/decorators.h"

namespace paceline::comm {
namespace {

// What must be the same on all ranks, as numbers.
struct Fingerprint {
  static constexpr int kWords = 5;
  std::int64_t words[kWords];

  static Fingerprint of(const Operation& op) {
    // The result of a broadcast does not depend on the operation, nor that of an allreduce on the root.
    const bool rooted = op.kind == Operation::Kind::broadcast || op.kind == Operation::Kind::reduce;
    return {{static_cast<std::int64_t>(op.kind), static_cast<std::int64_t>(op.buffer.dtype), op.buffer.count,
             op.reduces() ? static_cast<std::int64_t>(op.op) : 0, rooted ? op.root : 0}};
  }
  Operation operation() const {
    Operation op;
    op.kind = static_cast<Operation::Kind>(words[0]);
    op.buffer.dtype = static_cast<DType>(words[1]), op.buffer.count = words[2];
    op.op = static_cast<ReduceOp>(words[3]), op.root = static_cast<int>(words[4]);
    return op;
  }
};

class Check final : public Decorator {
 public:
  using Decorator::Decorator;

  Work start(const Operation& operation) override {
    compare(operation);
    return inner().start(operation);
  }
  void run(const Operation& operation) override {
    compare(operation);
    inner().run(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override { return check(inner().split(color, key)); }

 private:
  void compare(const Operation& operation) {
    if (!operation.is_collective()) return;
    ++sequence_;
    constexpr int kWords = Fingerprint::kWords;
    std::vector<std::int64_t> all(static_cast<std::size_t>(size() * kWords));
    const Fingerprint own = Fingerprint::of(operation);
    std::copy_n(own.words, kWords, all.begin() + rank() * kWords);
    inner().run(all_gather(all, {.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = operation.deadline}));
    std::string calls;
    int odd = -1;
    for (int peer = 0; peer < size(); ++peer) {
      Fingerprint theirs{};
      std::copy_n(all.begin() + peer * kWords, kWords, theirs.words);
      if (odd < 0 && !std::equal(own.words, own.words + kWords, theirs.words)) odd = peer;
      calls += fmt::format("{}rank {} called {}", peer > 0 ? ", " : "", peer, describe(theirs.operation()));
    }
    if (odd >= 0)
      throw PeerError(odd, std::string(name_of(operation.kind)), sequence_,
                      fmt::format("ranks called different collectives (sequence {}): {}", sequence_, calls));
  }

  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> check(std::unique_ptr<Communicator> inner) { return std::make_unique<Check>(std::move(inner)); }

}  // namespace paceline::comm

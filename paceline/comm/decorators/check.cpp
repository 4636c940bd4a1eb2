#include <fmt/format.h>

#include "paceline/comm/decorators/decorators.h"

namespace paceline::comm {
namespace {

constexpr std::int64_t kSplit = -1;  // used in place of a kind

// Everything that must be the same on all ranks, as numbers.
struct Fingerprint {
  static constexpr int kWords = 6;
  std::int64_t words[kWords];

  static Fingerprint of(const Operation& op) {
    // The result of a broadcast does not depend on the operation, nor that of an allreduce on the root.
    const bool rooted = op.kind == Operation::Kind::broadcast || op.kind == Operation::Kind::reduce;
    return {{static_cast<std::int64_t>(op.kind), static_cast<std::int64_t>(op.buffer.dtype), op.buffer.count,
             op.reduces() ? static_cast<std::int64_t>(op.op) : 0, rooted ? op.root : 0, number_of(op.algorithm)}};
  }
  std::string text() const {
    if (words[0] == kSplit) return "split";
    Operation op;
    op.kind = static_cast<Operation::Kind>(words[0]);
    op.buffer.dtype = static_cast<DType>(words[1]), op.buffer.count = words[2];
    op.op = static_cast<ReduceOp>(words[3]), op.root = static_cast<int>(words[4]);
    return fmt::format("{} by {}", describe(op),
                       words[5] == 0 ? "auto" : schedule::algorithms()[static_cast<std::size_t>(words[5] - 1)].key);
  }

 private:
  /// 0: auto; otherwise the row in the table, which is the same on all ranks.
  static std::int64_t number_of(const std::string& algorithm) {
    if (algorithm == "auto") return 0;
    return 1 + (&find(schedule::algorithms(), "algorithm", algorithm) - schedule::algorithms().data());
  }
};

class Check final : public Decorator {
 public:
  Check(std::unique_ptr<Communicator> inner, std::string algorithm) : Decorator(std::move(inner)), algorithm_(std::move(algorithm)) {}

  Work start(const Operation& operation) override {
    compare(operation);
    return inner().start(operation);
  }
  void run(const Operation& operation) override {
    compare(operation);
    inner().run(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    compare({{kSplit}}, "split", {});
    return check(inner().split(color, key), algorithm_);
  }

 private:
  void compare(Operation operation) {
    if (!operation.is_collective()) return;
    if (operation.algorithm.empty()) operation.algorithm = algorithm_;
    compare(Fingerprint::of(operation), std::string(name_of(operation.kind)), operation.deadline);
  }

  void compare(const Fingerprint& own, const std::string& name, Nanoseconds deadline) {
    ++sequence_;
    constexpr int kWords = Fingerprint::kWords;
    std::vector<std::int64_t> all(static_cast<std::size_t>(size() * kWords));
    std::copy_n(own.words, kWords, all.begin() + rank() * kWords);
    // Compared by name, because ranks may have been configured differently.
    inner().run(all_gather(all, {.op = ReduceOp::sum, .root = 0, .algorithm = "direct", .deadline = deadline}));
    std::string calls;
    int odd = -1;
    for (int peer = 0; peer < size(); ++peer) {
      Fingerprint theirs{};
      std::copy_n(all.begin() + peer * kWords, kWords, theirs.words);
      if (odd < 0 && !std::equal(own.words, own.words + kWords, theirs.words)) odd = peer;
      calls += fmt::format("{}rank {} called {}", peer > 0 ? ", " : "", peer, theirs.text());
    }
    if (odd >= 0)
      throw PeerError(name_in_run(odd), name, sequence_,
                      fmt::format("ranks called different collectives (sequence {}): {}", sequence_, calls));
  }

  std::string algorithm_;
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> check(std::unique_ptr<Communicator> inner, std::string algorithm) {
  return std::make_unique<Check>(std::move(inner), std::move(algorithm));
}

}  // namespace paceline::comm

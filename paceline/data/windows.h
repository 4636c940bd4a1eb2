// Datasets of tokens whose samples are windows of a text; the targets of a window are the tokens one position later.
#pragma once

#include <algorithm>
#include <utility>

#include "paceline/data/dataset.h"

namespace paceline::data {

class WindowSet : public Dataset {
 public:
  const Info& info() const final { return info_; }
  std::int64_t size() const final { return windows_; }

  void prepare(Batch& batch, std::int64_t count) const final {
    batch.count = count;
    batch.tokens.resize(static_cast<std::size_t>(count * context()));
    batch.targets.resize(batch.tokens.size());
  }

 protected:
  WindowSet(Info info, std::int64_t windows) : info_(std::move(info)), windows_(windows) {}

  std::int64_t context() const { return info_.input[0]; }

  /// Where a window begins: at `start`, or, with a stream, anywhere before the next one's start such that its targets end before `end`.
  std::int64_t place(std::int64_t start, std::int64_t end, RandomStream* random) const {
    if (!random) return start;
    const std::int64_t places = std::min(context(), end - context() - start);
    return start + static_cast<std::int64_t>(random->below(static_cast<std::uint64_t>(places)));
  }

 private:
  Info info_;
  std::int64_t windows_;
};

}  // namespace paceline::data

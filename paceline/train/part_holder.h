// A process that holds part of a run's state and is led by another: a server of a parameter server other than the first, or one of its
// workers. It reports what it holds, continues the hash of the state, and writes its shard of a checkpoint, when the leader tells it to.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/shard_write.h"

namespace paceline::train {

class PartHolder {
 public:
  /// Called with the tensors, which stay as they are until it returns.
  using Look = std::function<void(const std::vector<NamedTensor>&)>;

  /// `show` calls back with what the process holds now, in place. It is called for every order.
  explicit PartHolder(std::function<void(const Look&)> show) : show_(std::move(show)) {}

  /// Carries out an order (part_orders.h) and returns the answer.
  std::string carry_out(std::string_view order);

 private:
  void write(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors);
  std::string outcome_of(const std::filesystem::path& file);

  std::function<void(const Look&)> show_;
  std::filesystem::path file_;  // that it writes, or wrote last
  SteadyClock clock_;
  std::future<Written> writing_;  // valid until it is done
  Written written_;
};

}  // namespace paceline::train

// The contributions to a synchronous update, held until the last one has arrived and then added in the order of their minibatches, so that
// the bits do not depend on the order of arrival. So a run with bsp is repeatable, even if a server or worker is lost on the way.
//
// It costs a copy of the gradient for each worker. Consistencies that do not wait for all workers need none: their updates depend on the
// order of arrival anyway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/ps/kernels.h"

namespace paceline::ps {

/// Zeroed memory for `count` floats, in the same kind of memory (host or GPU) as the server's.
using Allocate = std::function<std::shared_ptr<float[]>(std::int64_t count)>;

class Round {
 public:
  /// For `length` gradients and `statistics` batch-norm statistics.
  Round(Allocate allocate, std::int64_t length, std::int64_t statistics)
      : allocate_(std::move(allocate)), length_(length), statistics_(statistics) {}

  /// The key of a minibatch: its sequence number, or its worker if it has none (0).
  struct Key {
    std::int64_t number = 0;
    int worker = 0;
  };
  void report(const Place& place, const Key& key, const float* statistics);
  void push(const Place& place, const Key& key, const float* gradient, float scale, float rate);
  /// Removes the minibatch with that key, which will not be pushed.
  void forget(const Key& key);
  /// The minibatch with that key is an update of its own: blends its statistics, and removes it.
  void blend_alone(const Place& place, const Key& key, float* into, float share);

  /// into ← Σ scale · gradient.
  void add_up(const Place& place, float* into) const;
  /// into ← (1 − share) · into + share · statistics, for each contribution.
  void blend(const Place& place, float* into, float share) const;
  /// The worker whose contribution is the last in that order, and its rate, with which the update is made.
  struct Last {
    int worker;
    float rate;
  };
  Last last() const;
  /// The update has been made. Minibatches that were reported but not pushed belong to the next one.
  void complete();
  std::int64_t pushed() const;  // how many gradients wait for the update
  bool has(std::int64_t number) const;

  // ---- for a checkpoint
  struct Array {
    std::string name;
    float* data;
    std::int64_t count;
    bool per_parameter = true;  // a value for each parameter of the range
  };
  std::vector<Array> arrays() const;
  void save(std::vector<std::int64_t>& into) const;
  /// Removes what save() wrote from the front of `from`. Returns whether it is well-formed; changes nothing else.
  bool read(std::span<const std::int64_t>& from);

 private:
  struct Entry {
    Key key;
    float scale = 1, rate = 0;
    std::shared_ptr<float[]> gradient{}, statistics{};  // null: not arrived yet
  };
  Entry& entry(const Key& key);
  std::vector<Entry>::iterator find(const Key& key);
  std::shared_ptr<float[]> spare(std::vector<std::shared_ptr<float[]>>& from, std::int64_t count);
  void recycle(Entry& entry);

  Allocate allocate_;
  std::int64_t length_, statistics_;
  std::vector<Entry> entries_;  // in the order of their keys
  std::vector<std::shared_ptr<float[]>> spare_gradients_, spare_statistics_;
};

}  // namespace paceline::ps

// The contributions to a synchronous update, held until the last one is there and then added in the order of their minibatches: whoever
// pushes first, the bits are the same. So a run with bsp repeats, and one whose server or worker was lost ends as if nothing had happened.
//
// It costs a copy of the gradient for each worker. Consistencies that do not wait for everybody need none: their updates depend on who
// came first anyway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/ps/kernels.h"

namespace paceline::ps {

/// Zeroed memory for `count` floats, where the server's place is.
using Allocate = std::function<std::shared_ptr<float[]>(std::int64_t count)>;

class Round {
 public:
  /// Of `length` gradients and `statistics` batch-norm statistics.
  Round(Allocate allocate, std::int64_t length, std::int64_t statistics)
      : allocate_(std::move(allocate)), length_(length), statistics_(statistics) {}

  /// A minibatch, by its sequence number; where it has none (0), by its worker.
  struct Key {
    std::int64_t number = 0;
    int worker = 0;
  };
  void report(const Place& place, const Key& key, const float* statistics);
  void push(const Place& place, const Key& key, const float* gradient, float scale, float rate);
  /// The minibatch of that key will not be pushed.
  void forget(const Key& key);
  /// The minibatch of that key is an update of its own: its statistics are blended, and it is forgotten.
  void blend_alone(const Place& place, const Key& key, float* into, float share);

  /// into ← Σ scale · gradient.
  void add_up(const Place& place, float* into) const;
  /// into ← (1 − share) · into + share · statistics, for each contribution.
  void blend(const Place& place, float* into, float share) const;
  /// Whose contribution is the last one in that order, and its rate, with which the update is made.
  struct Last {
    int worker;
    float rate;
  };
  Last last() const;
  /// The update is made. What was reported and not pushed belongs to the next one.
  void complete();
  bool any() const;  // contributions
  bool has(std::int64_t number) const;

  // ---- for a checkpoint
  struct Array {
    std::string name;
    float* data;
    std::int64_t count;
  };
  std::vector<Array> arrays() const;
  void save(std::vector<std::int64_t>& into) const;
  /// What save() wrote, from the front of `from`, which is left with the rest. Returns whether it is well-formed; changes nothing else.
  bool read(std::span<const std::int64_t>& from);

 private:
  struct Entry {
    Key key;
    float scale = 1, rate = 0;
    std::shared_ptr<float[]> gradient{}, statistics{};  // null: not there yet
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

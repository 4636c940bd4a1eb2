// A communicator whose operations are made on memory of a GPU: what the caller has in host memory is copied there before, and back after.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "paceline/comm/communicator.h"
#include "paceline/comm/gpu.h"

namespace paceline::comm {

class ByWayOfGpu final : public Communicator {
 public:
  explicit ByWayOfGpu(std::unique_ptr<Communicator> inner) : ByWayOfGpu(std::move(inner), std::make_shared<Pool>()) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Topology topology() const override { return inner_->topology(); }
  std::vector<int> hosts() const override { return inner_->hosts(); }
  std::string engine() const override { return inner_->engine(); }
  int name_in_run(int rank) const override { return inner_->name_in_run(rank); }
  Memory allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::unique_ptr<Communicator>(new ByWayOfGpu(inner_->split(color, key), pool_));
  }

  Work start(const Operation& operation) override {
    Operation op = operation;
    if (op.kind == Operation::Kind::barrier) return inner_->start(op);
    auto copies = std::make_shared<Copies>(op, pool_);
    copies->work = inner_->start(op);
    return Work(copies);
  }
  void run(const Operation& operation) override {
    Operation op = operation;
    if (op.kind == Operation::Kind::barrier) return inner_->run(op);
    Copies copies(op, pool_);
    inner_->run(op);
    copies.bring_back();
  }

 private:
  /// Memory and streams of operations that are over: CUDA takes its time to make them.
  struct Pool {
    std::mutex mutex;
    std::multimap<std::int64_t, Memory> memory;  // by bytes
    std::vector<std::unique_ptr<gpu::Queue>> queues;
  };

  ByWayOfGpu(std::unique_ptr<Communicator> inner, std::shared_ptr<Pool> pool) : inner_(std::move(inner)), pool_(std::move(pool)) {}

  /// A stream of its own: what one operation waits for is no other's concern.
  struct Copies final : Work::State {
    Copies(Operation& op, std::shared_ptr<Pool> used) : host(op.buffer), reads(op.kind != Operation::Kind::send), pool(std::move(used)) {
      const std::lock_guard lock(pool->mutex);
      if (pool->queues.empty()) pool->queues.push_back(std::make_unique<gpu::Queue>());
      queue = std::move(pool->queues.back()), pool->queues.pop_back();
      op.algorithm.clear();  // memory of a GPU has one
      for (Buffer* part : {&op.buffer, &op.input}) {
        if (part == &op.input && op.kind != Operation::Kind::all_to_all) continue;
        const std::int64_t bytes = std::max<std::int64_t>(part->bytes(), 1);
        gpu::Card unused{};
        const auto idle = pool->memory.find(bytes);
        memory.emplace_back(bytes, idle == pool->memory.end() ? gpu::share(bytes, unused) : idle->second);
        if (idle != pool->memory.end()) pool->memory.erase(idle);
        void* const own = memory.back().second.get();
        if (part->bytes() > 0) gpu::copy(own, part->data, part->bytes(), queue->stream());
        *part = Buffer(own, part->count, part->dtype, queue->stream());
      }
    }
    ~Copies() override {
      if (!over) return;  // others may still be at it
      const std::lock_guard lock(pool->mutex);
      pool->memory.insert(memory.begin(), memory.end());
      pool->queues.push_back(std::move(queue));
    }
    bool done() override { return work.done(); }
    void wait() override {
      work.wait();
      bring_back();
    }
    void abandon() override { work.abandon(); }
    void bring_back() {
      if (reads && host.bytes() > 0) gpu::copy(host.data, memory.front().second.get(), host.bytes(), queue->stream());
      gpu::synchronize(queue->stream());
      over = true;
    }

    Buffer host;
    bool reads, over = false;
    std::shared_ptr<Pool> pool;
    std::unique_ptr<gpu::Queue> queue;
    std::vector<std::pair<std::int64_t, Memory>> memory;  // of the buffer, and of the input, with their bytes
    Work work;
  };

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace paceline::comm

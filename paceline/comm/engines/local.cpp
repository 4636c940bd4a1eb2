// local: ranks are threads of one process. All memory is shared, so nothing is ever copied just to make it visible.
#include <sys/mman.h>

#include <mutex>
#include <new>

#include "paceline/comm/engines/all.h"
#include "paceline/comm/engines/common.h"
#include "paceline/comm/shared/shared_endpoint.h"

namespace paceline::comm {
namespace {

/// Zeroed pages, which are committed when they are first written.
Memory map_pages(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  madvise(pages, size, MADV_HUGEPAGE);
  return {pages, [size](void* memory) { munmap(memory, size); }};
}

/// The memory of ranks that are threads: one process sees all of it.
class ThreadMemory final : public shared::HostMemory {
 public:
  shared::Location locate(const void* data, std::int64_t) const override { return {1, reinterpret_cast<std::uint64_t>(data)}; }
  std::byte* address(shared::Location location) override { return reinterpret_cast<std::byte*>(location.offset); }  // NOLINT: an address
  Memory allocate(std::int64_t bytes) override { return map_pages(bytes); }
  shared::Location allocate_block(std::int64_t bytes, int ranks) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(blocks_,
                  [](const auto& block) { return shared::Block(static_cast<std::byte*>(block.first.get()), block.second).is_deserted(); });
    return locate(blocks_.emplace_back(map_pages(bytes), ranks).first.get(), bytes);
  }
  shared::SharedObjects* objects() override { return &objects_; }
  std::string gone(int) override { return {}; }

 private:
  shared::SharedObjects objects_;
  std::mutex mutex_;
  std::vector<std::pair<Memory, int>> blocks_;  // each with its ranks
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_group(int size, const CommConfig& config) {
  config.check_for(size);
  auto memory = std::make_shared<ThreadMemory>();
  const std::shared_ptr<Store> store = memory_store();
  shared::SharedEndpoint::Agreement agreement{.engine = "local",
                                              .host_ranks = {},
                                              .hosts = shared::emulated_hosts(size, with_hosts(config).per_host),
                                              .cores = usable_cores(),
                                              .block = {}};
  for (int i = 0; i < size; ++i) agreement.host_ranks.push_back(i);
  agreement.block = memory->allocate_block(shared::SharedEndpoint::block_bytes(agreement.hosts), size);
  std::vector<std::unique_ptr<Communicator>> group;
  group.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    group.push_back(
        decorated(communicator_over(std::make_unique<shared::SharedEndpoint>(agreement, rank, memory), config, store), config, store));
  return group;
}

}  // namespace paceline::comm

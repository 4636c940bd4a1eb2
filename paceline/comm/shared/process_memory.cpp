#include "paceline/comm/shared/process_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/descriptor.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/comm/world.h"

namespace paceline::comm::shared {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(fmt::format("shm: {}: {}", what, std::strerror(errno))); }

constexpr std::int64_t kPage = 2 << 20;  // large pages, if the system has them

std::int64_t machine_bytes() { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

/// A memory file, mapped.
class Mapping {
 public:
  Mapping(const Descriptor& file, std::size_t bytes) : bytes_(bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (mapped == MAP_FAILED) fail(fmt::format("cannot map {} bytes", bytes));
    memory_ = static_cast<std::byte*>(mapped);
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    madvise(memory_, bytes_, MADV_DONTDUMP);
  }
  Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (memory_) munmap(memory_, bytes_);
  }
  std::byte* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Hands out ranges of the file. Ranges that are returned are zeroed and reused.
class Ranges {
 public:
  Ranges(int file, std::int64_t bytes, int ranks) : file_(file), bytes_(bytes), ranks_(ranks) { free_[0] = bytes; }

  std::int64_t take(std::int64_t bytes) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->second < bytes) continue;
      const auto [offset, size] = *at;
      free_.erase(at);
      if (size > bytes) free_[offset + bytes] = size - bytes;
      return offset;
    }
    throw Error(fmt::format(
        "shm: fewer than {} MiB are left of the {} MiB that each of {} has on this host; {}", bytes >> 20, bytes_ >> 20,
        plural(ranks_, "rank"),
        bytes_ < reserved_bytes(machine_bytes(), 1) ? "start fewer of them here" : "choose a smaller model, or a host with more memory"));
  }

  void give_back(std::int64_t offset, std::int64_t bytes) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);  // releases the pages; the next reader finds zeros
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) bytes += next->second, next = free_.erase(next);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) offset = before->first, bytes += before->second, free_.erase(before);
    }
    free_[offset] = bytes;
  }

 private:
  int file_;
  std::int64_t bytes_;
  int ranks_;
  std::map<std::int64_t, std::int64_t> free_;  // offset → size
};

/// Memory of the ranks of a host; `file` r + 1 is rank r's.
class ProcessMemory final : public HostMemory, public std::enable_shared_from_this<ProcessMemory> {
 public:
  ProcessMemory(int rank, int ranks, std::int64_t bytes)
      : rank_(rank), file_(make_file(bytes)), own_(file_, static_cast<std::size_t>(bytes)), ranges_(file_.get(), bytes, ranks) {}

  /// What the others need to access this rank's memory.
  std::string card() const { return fmt::format("{} {} {}", getpid(), file_.get(), own_.bytes()); }

  /// Maps what the cards name, including this rank's own.
  void meet(const std::vector<std::string>& cards) {
    for (std::size_t peer = 0; peer < cards.size(); ++peer) {
      std::istringstream card(cards[peer]);
      int pid = 0, number = 0;
      std::size_t bytes = 0;
      card >> pid >> number >> bytes;
      if (static_cast<int>(peer) == rank_) {
        peers_.push_back({own_.memory(), std::nullopt, Descriptor()});
        continue;
      }
      const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
      const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!file) fail(fmt::format("cannot open the memory of rank {} at {}", peer, path));
      Mapping mapping(file, bytes);
      std::byte* memory = mapping.memory();
      peers_.push_back({memory, std::move(mapping), Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))});
    }
  }

  Location locate(const void* data, std::int64_t bytes) const override {
    const auto* at = static_cast<const std::byte*>(data);
    if (at < own_.memory() || at + bytes > own_.memory() + own_.bytes()) return {};
    return {static_cast<std::uint64_t>(rank_ + 1), static_cast<std::uint64_t>(at - own_.memory())};
  }

  std::byte* address(Location location) override { return peers_[location.file - 1].memory + location.offset; }

  Memory allocate(std::int64_t bytes) override {
    const std::int64_t size = whole_pages(bytes);
    const std::int64_t offset = take(size);
    return {own_.memory() + offset, [self = shared_from_this(), offset, size](void*) {
              const std::lock_guard lock(self->mutex_);
              self->ranges_.give_back(offset, size);
            }};
  }

  Location allocate_block(std::int64_t bytes, int ranks) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(blocks_, [this](const Lent& block) {
      const bool deserted = Block(own_.memory() + block.offset, block.ranks).is_deserted();
      if (deserted) ranges_.give_back(block.offset, block.bytes);
      return deserted;
    });
    const std::int64_t size = whole_pages(bytes);
    blocks_.push_back({ranges_.take(size), size, ranks});
    return {static_cast<std::uint64_t>(rank_ + 1), static_cast<std::uint64_t>(blocks_.back().offset)};
  }

  std::string gone(int peer) override {
    const int process = peers_[static_cast<std::size_t>(peer)].process.get();
    pollfd ended{.fd = process, .events = POLLIN, .revents = 0};
    return process >= 0 && poll(&ended, 1, 0) > 0 ? "is gone: its process ended" : "";
  }

 private:
  struct Peer {
    std::byte* memory;
    std::optional<Mapping> mapping;
    Descriptor process;  // readable once the process has ended
  };

  struct Lent {
    std::int64_t offset, bytes;
    int ranks;
  };

  static std::int64_t whole_pages(std::int64_t bytes) { return (std::max<std::int64_t>(bytes, 1) + kPage - 1) / kPage * kPage; }
  std::int64_t take(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return ranges_.take(bytes);
  }

  static Descriptor make_file(std::int64_t bytes) {
    Descriptor file(static_cast<int>(syscall(SYS_memfd_create, "paceline", MFD_CLOEXEC)));
    if (!file) fail("cannot create a memory file");
    if (ftruncate(file.get(), bytes) != 0) fail("cannot resize a memory file");
    return file;
  }

  int rank_;
  Descriptor file_;
  Mapping own_;
  std::mutex mutex_;
  Ranges ranges_;
  std::vector<Lent> blocks_;
  std::vector<Peer> peers_;
};

}  // namespace

std::int64_t reserved_bytes(std::int64_t machine, int ranks) {
#if PACELINE_SANITIZED
  machine = std::min<std::int64_t>(machine, 1 << 30);  // sanitizers shadow every address, which leaves fewer
#endif
  constexpr std::int64_t kAddresses = std::int64_t{1} << 45;  // a quarter of what a process has, because there may be several groups
  return std::min(machine, kAddresses / ranks) / kPage * kPage;
}

Neighbours meet_neighbours(int rank, const Exchange& exchange, const std::function<std::int64_t(int)>& block_bytes) {
  const std::vector<std::string> ids = exchange(host_id());
  Neighbours found;
  for (const std::string& id : ids) found.hosts.push_back(static_cast<int>(std::find(ids.begin(), ids.end(), id) - ids.begin()));
  const auto own = static_cast<std::size_t>(rank);
  int place = 0;
  for (int i = 0; i < static_cast<int>(ids.size()); ++i) {
    if (ids[static_cast<std::size_t>(i)] != ids[own]) continue;
    if (i == rank) place = static_cast<int>(found.ranks.size());
    found.ranks.push_back(i);
  }
  const auto count = static_cast<int>(found.ranks.size());
  auto memory = std::make_shared<ProcessMemory>(place, count, reserved_bytes(machine_bytes(), count));
  if (place == 0) found.block = memory->allocate_block(block_bytes(count), count);
  const std::vector<std::string> all = exchange(fmt::format("{} {}", memory->card(), found.block.offset));
  std::vector<std::string> cards;
  for (int i : found.ranks) cards.push_back(all[static_cast<std::size_t>(i)]);
  memory->meet(cards);
  const std::string& first = cards.front();
  found.block = {1, std::stoull(first.substr(first.rfind(' ') + 1))};
  found.memory = std::move(memory);
  exchange("mapped");  // no rank continues, and perhaps ends, before all have mapped its file
  return found;
}

}  // namespace paceline::comm::shared

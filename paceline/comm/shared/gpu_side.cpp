#include "paceline/comm/shared/gpu_side.h"

#include <chrono>
#include <thread>

namespace paceline::comm::shared {
namespace {

constexpr auto kFarewell = std::chrono::milliseconds(100);  // ranks usually leave together

/// Another rank's window. It is counted as open from before it is opened until after it is closed.
struct Opened {
  explicit Opened(std::atomic<std::uint32_t>& count) : openers(count) { openers.fetch_add(1, std::memory_order_acq_rel); }
  ~Opened() {
    window.reset();
    openers.fetch_sub(1, std::memory_order_acq_rel);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  std::atomic<std::uint32_t>& openers;
  std::shared_ptr<void> window;
};

}  // namespace

std::uint64_t SharedObjects::add(const std::shared_ptr<void>& object) {
  const std::lock_guard lock(mutex_);
  std::erase_if(objects_, [](const auto& entry) { return entry.second.expired(); });
  objects_.emplace(++last_, object);
  return last_;
}

std::shared_ptr<void> SharedObjects::find(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(number);
  return found == objects_.end() ? nullptr : found->second.lock();
}

void LentWindows::add(std::shared_ptr<void> window, const std::atomic<std::uint32_t>& openers) {
  const std::lock_guard lock(mutex_);
  windows_.push_back({std::move(window), &openers});
  std::erase_if(windows_, [](const Window& each) { return each.openers->load(std::memory_order_acquire) == 0; });
}

LentWindows::~LentWindows() {
  for (Window& each : windows_)
    new std::shared_ptr<void>(std::move(each.memory));  // NOLINT: leaked on purpose, nobody may free it before the process ends
}

GpuSide::~GpuSide() {
  const std::shared_ptr<void> own = std::exchange(windows_[static_cast<std::size_t>(rank_)], nullptr);
  windows_.clear();  // the others'
  if (!own) return;
  const std::atomic<std::uint32_t>& openers = block_.seat(rank_).window_openers;
  const auto until = std::chrono::steady_clock::now() + kFarewell;
  while (openers.load(std::memory_order_acquire) > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (openers.load(std::memory_order_acquire) > 0) host_.lent_windows().add(own, openers);
}

GpuSide::Marks& GpuSide::own_marks() {
  std::shared_ptr<Marks>& own = marks_[static_cast<std::size_t>(rank_)];
  if (!own) own = std::make_shared<Marks>(), marks_number_ = host_.objects()->add(own);
  return *own;
}

bool GpuSide::meet(int peer, const Notice& notice, int own_gpu) {
  std::shared_ptr<Marks>& marks = marks_[static_cast<std::size_t>(peer)];
  if (!marks) marks = std::static_pointer_cast<Marks>(host_.objects()->find(notice.marks));
  if (!marks) return false;
  if (notice.gpu != own_gpu && reached_.insert({own_gpu, notice.gpu}).second) gpu::reach(notice.gpu);
  return true;
}

void GpuSide::hold(void* stream, gpu::Mark Marks::*which) const {
  for (std::size_t peer = 0; peer < marks_.size(); ++peer)
    if (static_cast<int>(peer) != rank_) ((*marks_[peer]).*which).hold(stream);
}

void GpuSide::show_window() {
  std::shared_ptr<void>& own = windows_[static_cast<std::size_t>(rank_)];
  if (!own) own = gpu::share(kGpuWindow, block_.seat(rank_).window);
}

void GpuSide::open_windows() {
  for (std::size_t peer = 0; peer < windows_.size(); ++peer) {
    if (windows_[peer]) continue;
    Seat& seat = block_.seat(static_cast<int>(peer));
    const auto counted = std::make_shared<Opened>(seat.window_openers);
    counted->window = gpu::open(seat.window);
    windows_[peer] = {counted, counted->window.get()};
  }
}

}  // namespace paceline::comm::shared

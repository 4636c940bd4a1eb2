#include "paceline/comm/shared/gpu_side.h"

namespace paceline::comm::shared {

const GpuSide::SharedMarks& GpuSide::own_marks() {
  SharedMarks& own = marks_[static_cast<std::size_t>(rank_)];
  if (!own) own = std::make_shared<Marks>();
  return own;
}

void GpuSide::hold(void* stream, gpu::Mark Marks::*which) const {
  for (std::size_t peer = 0; peer < marks_.size(); ++peer)
    if (static_cast<int>(peer) != rank_) ((*marks_[peer]).*which).hold(stream);
}

void GpuSide::show_window(gpu::Card& card) {
  std::shared_ptr<void>& own = windows_[static_cast<std::size_t>(rank_)];
  if (!own) own = gpu::share(kGpuWindow, card);
}

}  // namespace paceline::comm::shared

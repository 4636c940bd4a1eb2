#include "paceline/tensor/device_pages.h"

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/tensor/recorded.h"

namespace paceline::tensor {
namespace {

/// The driver's functions, loaded on demand, so that a program that is built for CUDA also starts without a driver.
struct Driver {
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

  static std::optional<Driver> find() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return std::nullopt;
    Driver driver;
    bool all = true;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));  // NOLINT: what dlsym is for
      all = all && function;
    };
    take(driver.device, "cuDeviceGet"), take(driver.attribute, "cuDeviceGetAttribute");
    take(driver.reserve, "cuMemAddressReserve"), take(driver.free, "cuMemAddressFree");
    take(driver.granularity, "cuMemGetAllocationGranularity");
    take(driver.create, "cuMemCreate"), take(driver.release, "cuMemRelease");
    take(driver.map, "cuMemMap"), take(driver.unmap, "cuMemUnmap"), take(driver.set_access, "cuMemSetAccess");
    return all ? std::optional(driver) : std::nullopt;
  }

  bool manages_memory(int index) const {
    CUdevice number = 0;
    int can = 0;
    return device(&number, index) == CUDA_SUCCESS &&
           attribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, number) == CUDA_SUCCESS && can != 0;
  }
};

void require_done(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw Error(fmt::format("CUDA: {} failed with error {}", what, static_cast<int>(result)));
}

class MappedPages final : public DevicePages {
 public:
  MappedPages(const Driver& driver, const c10::Device& device, std::size_t bytes) : driver_(driver), device_(device) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.index()};
    require_done(driver_.granularity(&page_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "asking for the size of pages");
    behind_.assign((bytes + page_ - 1) / page_, kBlank);
    require_done(driver_.reserve(&base_, behind_.size() * page_, 0, 0, 0), "reserving addresses");
    try {
      frames_.push_back({create(), true});  // kBlank
      for (std::size_t page = 0; page < behind_.size(); ++page) {
        behind_[page] = frames_.size();
        frames_.push_back({create(), true});
        map(page);
      }
      allow(0, behind_.size());
    } catch (...) {
      free_all();
      throw;
    }
  }
  ~MappedPages() override { free_all(); }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  static void destroy(void* pages) { delete static_cast<MappedPages*>(pages); }  // NOLINT: LibTorch's storage owns it

  void* data() const { return reinterpret_cast<void*>(base_); }  // NOLINT: a CUdeviceptr is an address
  std::size_t page_bytes() const override { return page_; }
  std::size_t held() const override { return held_; }
  std::int64_t mappings() const override { return mappings_; }

  // Memory may run out, so all frames are allocated before the first address changes.
  void bring(std::size_t first, std::size_t count) override {
    std::vector<std::size_t> taken;
    std::vector<Change> changes;
    try {
      for (std::size_t page = first; page < first + count; ++page)
        if (!frames_[behind_[page]].used) frames_[behind_[page]].used = true, taken.push_back(behind_[page]);
        else changes.push_back({page, kBlank});
      for (Change& change : changes) taken.push_back(change.frame = take_unused());
    } catch (...) {
      for (const std::size_t frame : taken) frames_[frame].used = false;
      throw;
    }
    remap(changes);
  }

  void take_away(std::size_t first, std::size_t count) override {
    for (std::size_t page = first; page < first + count; ++page) frames_[behind_[page]].used = false;
  }

  void shrink(std::size_t idle) override {
    std::size_t unused = 0;
    std::vector<bool> goes(frames_.size(), false);
    for (std::size_t frame = 1; frame < frames_.size(); ++frame)
      if (frames_[frame].handle && !frames_[frame].used && ++unused > idle) goes[frame] = true;
    if (unused <= idle) return;
    std::vector<Change> changes;  // the driver takes a frame back once no address has it
    for (std::size_t page = 0; page < behind_.size(); ++page)
      if (goes[behind_[page]]) changes.push_back({page, kBlank});
    remap(changes);
    for (std::size_t frame = 1; frame < frames_.size(); ++frame)
      if (goes[frame]) driver_.release(std::exchange(frames_[frame].handle, 0)), --held_;
  }

 private:
  static constexpr std::size_t kBlank = 0;
  struct Frame {
    CUmemGenericAllocationHandle handle = 0;  // 0: went back to the driver
    bool used = false;
  };
  struct Change {
    std::size_t page, frame;
  };

  CUdeviceptr at(std::size_t page) const { return base_ + page * page_; }

  /// A frame that has memory, if there is any.
  std::size_t take_unused() {
    const auto unused = [](const Frame& frame) { return !frame.used && frame.handle; };
    auto found = std::ranges::find_if(frames_, unused);
    if (found == frames_.end()) {
      const CUmemGenericAllocationHandle handle = create();
      found = std::ranges::find_if(frames_, [](const Frame& frame) { return !frame.handle; });
      if (found == frames_.end()) found = frames_.insert(frames_.end(), Frame{});
      found->handle = handle;
    }
    found->used = true;
    return static_cast<std::size_t>(found - frames_.begin());
  }

  CUmemGenericAllocationHandle create() {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver_.create(&handle, page_, &properties_, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // LibTorch caches freed memory
      const auto lock = without_recordings();
      c10::cuda::CUDACachingAllocator::emptyCache();
      result = driver_.create(&handle, page_, &properties_, 0);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      throw ConfigError(fmt::format("the GPU has no memory left for {} MB of the model's state; see `paceline memory` for what would fit",
                                    behind_.size() * page_ >> 20));
    require_done(result, "allocating a page");
    ++held_;
    return handle;
  }

  /// Other frames behind some addresses, in ascending order. The stream may still use those that lie there.
  void remap(const std::vector<Change>& changes) {
    if (changes.empty()) return;
    at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
    for (std::size_t i = 0; i < changes.size();) {
      const std::size_t first = changes[i].page;
      std::size_t count = 0;
      for (; i < changes.size() && changes[i].page == first + count; ++i, ++count) {
        require_done(driver_.unmap(at(changes[i].page), page_), "unmapping a page");
        behind_[changes[i].page] = changes[i].frame;
        map(changes[i].page);
      }
      allow(first, count);
    }
    mappings_ += std::ssize(changes);
  }

  void map(std::size_t page) { require_done(driver_.map(at(page), page_, 0, frames_[behind_[page]].handle, 0), "mapping a page"); }
  void allow(std::size_t first, std::size_t count) {
    const CUmemAccessDesc access{.location = properties_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (count > 0) require_done(driver_.set_access(at(first), count * page_, &access, 1), "opening pages");
  }

  // At the end of the program, the driver may already be gone, so no call is checked.
  void free_all() {
    int current = -1;
    const bool elsewhere = cudaGetDevice(&current) == cudaSuccess && current != device_.index();
    if (elsewhere) cudaSetDevice(device_.index());
    {
      const auto lock = without_recordings();
      cudaDeviceSynchronize();
    }
    if (elsewhere) cudaSetDevice(current);
    for (std::size_t page = 0; page < behind_.size(); ++page) driver_.unmap(at(page), page_);
    for (const Frame& frame : frames_)
      if (frame.handle) driver_.release(frame.handle);
    driver_.free(base_, behind_.size() * page_);
  }

  Driver driver_;
  c10::Device device_;
  CUmemAllocationProp properties_{};
  std::size_t page_ = 0, held_ = 0;
  std::int64_t mappings_ = 0;
  CUdeviceptr base_ = 0;
  std::vector<Frame> frames_;
  std::vector<std::size_t> behind_;  // by page: the frame that the driver has there; an unused one may lie behind several
};

}  // namespace

at::Tensor DevicePages::allocate(std::int64_t elements, const at::TensorOptions& options) {
  const std::optional<Driver> driver = Driver::find();
  const c10::Device device = options.device();
  if (!driver || !driver->manages_memory(device.index())) return {};
  const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  auto pages = std::make_unique<MappedPages>(*driver, device, bytes);
  void* data = pages->data();
  c10::DataPtr owned(data, pages.release(), &MappedPages::destroy, device);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(owned), /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(storage, 0, {elements}, {1}).zero_();
}

DevicePages* DevicePages::of(const at::Tensor& flat) {
  return flat.is_cuda() ? flat.storage().data_ptr().cast_context<MappedPages>(&MappedPages::destroy) : nullptr;
}

}  // namespace paceline::tensor

#else

namespace paceline::tensor {

at::Tensor DevicePages::allocate(std::int64_t, const at::TensorOptions&) { return {}; }
DevicePages* DevicePages::of(const at::Tensor&) { return nullptr; }

}  // namespace paceline::tensor

#endif

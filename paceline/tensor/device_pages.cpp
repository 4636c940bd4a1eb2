#include "paceline/tensor/device_pages.h"

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda.h>
#include <dlfcn.h>

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::tensor {
namespace {

/// The driver's functions, found when they are needed: a program that is built for CUDA starts where there is no driver, too.
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
    slots_.resize((bytes + page_ - 1) / page_);
    require_done(driver_.reserve(&base_, slots_.size() * page_, 0, 0, 0), "reserving addresses");
    try {
      blank_ = create();
      for (std::size_t page = 0; page < slots_.size(); ++page) slots_[page] = create(), map(page, slots_[page]);
      allow(0, slots_.size());
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

  // Memory may end: all pages are there before the first address changes.
  void bring(std::size_t first, std::size_t count) override {
    while (idle_.size() < count) idle_.push_back(create());
    synchronise();
    require_done(driver_.unmap(at(first), count * page_), "unmapping pages");
    for (std::size_t page = first; page < first + count; ++page) {
      slots_[page] = idle_.back(), idle_.pop_back();
      map(page, slots_[page]);
    }
    allow(first, count);
  }

  void take_away(std::size_t first, std::size_t count) override {
    synchronise();
    require_done(driver_.unmap(at(first), count * page_), "unmapping pages");
    for (std::size_t page = first; page < first + count; ++page) {
      idle_.push_back(slots_[page]);
      slots_[page] = 0;
      map(page, blank_);
    }
    allow(first, count);
  }

  void shrink(std::size_t idle) override {
    for (; idle_.size() > idle; idle_.pop_back(), --held_) driver_.release(idle_.back());
  }

 private:
  CUdeviceptr at(std::size_t page) const { return base_ + page * page_; }
  void synchronise() const { at::cuda::getCurrentCUDAStream(device_.index()).synchronize(); }

  CUmemGenericAllocationHandle create() {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver_.create(&handle, page_, &properties_, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // LibTorch keeps what it freed
      c10::cuda::CUDACachingAllocator::emptyCache();
      result = driver_.create(&handle, page_, &properties_, 0);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      throw ConfigError(fmt::format("the GPU has no memory left for {} MB of the model's state; see `paceline memory` for what would fit",
                                    slots_.size() * page_ >> 20));
    require_done(result, "allocating a page");
    ++held_;
    return handle;
  }

  void map(std::size_t page, CUmemGenericAllocationHandle handle) {
    require_done(driver_.map(at(page), page_, 0, handle, 0), "mapping a page");
  }
  void allow(std::size_t first, std::size_t count) {
    const CUmemAccessDesc access{.location = properties_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (count > 0) require_done(driver_.set_access(at(first), count * page_, &access, 1), "opening pages");
  }

  // At the end of the program the driver may be gone already, and everything with it; so no call is checked.
  void free_all() {
    int current = -1;
    const bool elsewhere = cudaGetDevice(&current) == cudaSuccess && current != device_.index();
    if (elsewhere) cudaSetDevice(device_.index());
    cudaDeviceSynchronize();
    if (elsewhere) cudaSetDevice(current);
    for (std::size_t page = 0; page < slots_.size(); ++page) driver_.unmap(at(page), page_);
    for (const CUmemGenericAllocationHandle handle : slots_)
      if (handle) driver_.release(handle);
    for (const CUmemGenericAllocationHandle handle : idle_) driver_.release(handle);
    if (blank_) driver_.release(blank_);
    driver_.free(base_, slots_.size() * page_);
  }

  Driver driver_;
  c10::Device device_;
  CUmemAllocationProp properties_{};
  std::size_t page_ = 0, held_ = 0;
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle blank_ = 0;
  std::vector<CUmemGenericAllocationHandle> slots_;  // by page; 0: the blank one
  std::vector<CUmemGenericAllocationHandle> idle_;
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

// Weights and checkpoints: the header of a safetensors file, and every byte that it promises.
#include "paceline/base/safetensors.h"

#include "paceline/base/checksum.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::parse([&] {
    const fuzz::InputFile input(data, size);
    const safetensors::File file(input.path());
    std::size_t bytes = 0;
    for (const safetensors::Tensor& tensor : file.tensors()) {
      crc32c(tensor.data);  // reads it
      bytes += tensor.data.size();
      fuzz::require(file.find(tensor.name) != nullptr, "every tensor is found by its name");
    }
    fuzz::require(bytes <= size, "tensors lie inside the file");
  });
}

// CIFAR-10 and CIFAR-100, as files of a single record.
#include "paceline/data/cifar.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::InputFile input(data, size);
  for (const std::int64_t coarse : {0, 20})
    fuzz::parse([&] {
      const data::Images images = data::read_cifar(
          "/", {.names = {input.path().string()}, .records = 1, .classes = coarse > 0 ? 100 : 10, .coarse_classes = coarse});
      fuzz::require(images.labels.size() == 1 && images.bytes.size() == 3 * 32 * 32, "a record is one image");
      fuzz::require(images.labels[0] < 100, "labels are in range");
    });
  return 0;
}

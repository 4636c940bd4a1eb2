// IDX, the files of MNIST, plain and compressed.
#include "paceline/data/idx.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::InputFile input(data, size);
  for (const int rank : {1, 3})
    fuzz::parse([&] {
      const data::Idx idx = data::read_idx(input.path(), rank);
      std::int64_t count = 1;
      for (const std::int64_t extent : idx.shape) count *= extent;
      fuzz::require(count == std::ssize(idx.bytes), "the bytes are those of the shape");
    });
  return 0;
}

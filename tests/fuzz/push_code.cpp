// Compressed pushes, as a server decodes them: a byte that chooses the compressor, then the code.
#include <vector>

#include "paceline/ps/transports/push_coder.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const compress::RangeLayout range{.parts = {{0, 40, 8, 5}, {48, 7, 1, 7}, {64, 65, 5, 13}}, .length = 144};
  fuzz::Pieces pieces(data, size);
  const auto all = compress::compressors();
  ps::PushCompression compression{.name = std::string(all[pieces.value<std::uint8_t>() % all.size()].key)};
  compression.settings.block = 32, compression.settings.density = 0.25;
  return fuzz::parse([&] {
    const ps::PushDecoder decoder(compression, range);
    const std::string_view bytes = pieces.bytes(size);
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<std::byte> code(begin, begin + bytes.size());  // aligned, and with nothing behind it
    std::vector<float> gradient(static_cast<std::size_t>(range.length));
    decoder.decode(code, gradient.data());
  });
}

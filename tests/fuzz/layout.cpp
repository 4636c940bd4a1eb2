// The layout of a model, as a worker that joins sends it.
#include "paceline/ps/layout.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ps::ArenaLayout own{.entries = {{"weight", {2, 3}, 0, 6}, {"bias", {2}, 16, 2, false}}, .length = 32, .statistics = 4};
  return fuzz::parse([&] {
    const ps::ArenaLayout layout = ps::parse_layout(fuzz::text_of(data, size));
    fuzz::require(ps::parse_layout(ps::serialise(layout)) == layout, "a layout that was written is read as it was");
    fuzz::require(ps::difference(own, layout).empty() == (own == layout), "layouts that differ differ in something");
    std::int64_t end = 0;
    for (const auto& part : ps::parts_of(layout).parts) {
      fuzz::require(part.offset >= end && part.count >= 0, "tensors do not overlap");
      end = part.offset + part.count;
    }
    fuzz::require(end <= layout.length, "tensors lie inside the arena");
  });
}

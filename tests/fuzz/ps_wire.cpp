// A parameter server's messages: one byte for the length of the head, the head, the payload.
#include "paceline/ps/transports/desk.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

namespace {

const ps::ArenaLayout kLayout{.entries = {{"weight", {2, 3}, 0, 6}, {"bias", {2}, 16, 2, false}}, .length = 32, .statistics = 4};

/// What `raise` throws is what the other side says; that it throws nothing else is what counts.
void raise(std::string_view head, std::string_view payload) {
  try {
    ps::wire::raise(head, payload);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Pieces pieces(data, size);
  const std::string_view head = pieces.bytes(pieces.value<std::uint8_t>()), payload = pieces.bytes(size);
  return fuzz::parse([&] {
    const ps::wire::Verb verb = ps::wire::unpack_head(head).verb;
    ps::wire::name(verb);
    if (verb == ps::wire::Verb::error) raise(head, payload);
    if (verb == ps::wire::Verb::join) ps::check_alike(ps::wire::unpack<ps::wire::Join>(head), payload, kLayout, {});
  });
}

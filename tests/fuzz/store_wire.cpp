// What a store's server and its clients receive.
#include "paceline/comm/tcp_store_wire.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline::comm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view payload = paceline::fuzz::text_of(data, size);
  wire::frame_length(payload.substr(0, wire::kHeaderBytes));
  if (const auto hello = wire::decode_hello(payload)) paceline::fuzz::require(wire::encode(*hello) == payload, "a hello is its bytes");
  if (const auto request = wire::decode_request(payload))
    paceline::fuzz::require(wire::encode(*request) == payload, "a request is its bytes");
  if (const auto reply = wire::decode_reply(payload)) paceline::fuzz::require(wire::encode(*reply) == payload, "a reply is its bytes");
  return 0;
}

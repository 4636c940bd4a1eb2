// Parsers of messages that arrive before authentication: a client's response, a server's greeting and its proof.
#include "paceline/comm/handshake.h"

#include "tests/fuzz/fuzz.h"

using namespace paceline::comm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = paceline::fuzz::text_of(data, size);
  static const handshake::Challenge challenge("key", kForStore);
  paceline::fuzz::require(!challenge.answer(bytes), "nobody guesses a proof");
  try {
    const handshake::Response response("key", kForStore, bytes.substr(0, handshake::kGreetingBytes));
    paceline::fuzz::require(response.bytes().size() == handshake::kResponseBytes, "a response has one length");
    response.check(bytes.substr(std::min(handshake::kGreetingBytes, bytes.size())));
    paceline::fuzz::require(false, "nobody guesses a proof");
  } catch (const StrangerError&) {
  }
  return 0;
}

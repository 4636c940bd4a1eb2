#include "paceline/comm/handshake.h"

#include "paceline/base/entropy.h"

namespace paceline::comm {

using namespace std::chrono_literals;

namespace handshake {
namespace {

/// Every part but the purpose has a fixed length, and the purpose ends with a zero, so no two different lists of parts give the same text.
std::string proof_of(std::string_view side, std::string_view key, std::string_view purpose, std::string_view server_nonce,
                     std::string_view client_nonce) {
  std::string text = "paceline ";
  text.append(side).append(1, '\0').append(purpose).append(1, '\0').append(server_nonce).append(client_nonce);
  return hmac_sha256(key, text);
}

}  // namespace

Challenge::Challenge(std::string_view key, std::string_view purpose) : key_(key), purpose_(purpose), nonce_(random_bytes(kNonceBytes)) {}

std::optional<std::string> Challenge::answer(std::string_view response) const { return correct(response, purpose_); }

std::optional<std::string> Challenge::correct(std::string_view response, std::string_view other_purpose) const {
  if (response.size() != kResponseBytes) return std::nullopt;
  const std::string_view client_nonce = response.substr(0, kNonceBytes), proof = response.substr(kNonceBytes);
  if (!equal_in_constant_time(proof, proof_of("client", key_, other_purpose, nonce_, client_nonce))) return std::nullopt;
  return proof_of("server", key_, purpose_, nonce_, client_nonce);
}

Response::Response(std::string_view key, std::string_view purpose, std::string_view greeting, std::string_view other_purpose) {
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kMagic))
    throw StrangerError("another program, or another version of Paceline");
  const std::string_view server_nonce = greeting.substr(kMagic.size());
  const std::string client_nonce = random_bytes(kNonceBytes);
  bytes_ = client_nonce + proof_of("client", key, purpose, server_nonce, client_nonce);
  expected_ = proof_of("server", key, purpose, server_nonce, client_nonce);
  if (!other_purpose.empty()) mistaken_ = proof_of("server", key, other_purpose, server_nonce, client_nonce);
}

void Response::check(std::string_view proof) const {
  if (proof == kRefusal) throw StrangerError("another job of Paceline, or this process does not have the job's key");
  if (!mistaken_.empty() && equal_in_constant_time(proof, mistaken_)) throw OtherPurposeError("of this job, but expects other connections");
  if (!equal_in_constant_time(proof, expected_)) throw StrangerError("an impostor: it does not know the job's key");
}

}  // namespace handshake

namespace {

constexpr Nanoseconds kGreetingTime = 1s;  // a server of ours sends its greeting at once, so this is plenty even over a slow link

std::string receive_greeting(const Socket& socket, const Deadline& deadline) {
  try {
    return receive_exactly(socket, handshake::kGreetingBytes, deadline.or_sooner(kGreetingTime));
  } catch (const std::system_error& error) {
    if (deadline.passed() || error.code() != std::errc::timed_out) throw;
    throw SilentError("another program, which does not speak Paceline's protocol");
  }
}

}  // namespace

void authenticate(const Socket& socket, std::string_view key, std::string_view purpose, const Deadline& deadline,
                  std::string_view other_purpose) {
  if (!same_user(socket)) throw StrangerError("a process of another user");
  const handshake::Response response(key, purpose, receive_greeting(socket, deadline), other_purpose);
  send_all(socket, response.bytes(), deadline);
  response.check(receive_exactly(socket, handshake::kProofBytes, deadline));
}

}  // namespace paceline::comm

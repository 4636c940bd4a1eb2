// How two processes of a job prove to each other that they know its key, before either trusts anything that the other says.
//
//   server → client   greeting: magic and version, nonce S
//   client → server   response: nonce C, HMAC-SHA-256(key; "client", purpose, S, C)
//   server → client   proof:    HMAC-SHA-256(key; "server", purpose, S, C), or a refusal: as many zeros
//
// Nonces are 32 fresh random bytes, so a recorded conversation cannot be replayed; both proofs name their side and the purpose ("store",
// "parameter server"), so neither can be reflected or reused on another transport. The key itself is never sent. The server speaks first:
// a client sends nothing to a program that does not greet.
//
// All lengths are fixed, and no allocation depends on what a peer claims. This file handles bytes; Reception (reception.h) and
// authenticate() handle sockets. If a connection is encrypted, TLS (tls.h) follows the proofs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/hmac.h"
#include "paceline/comm/sockets.h"

namespace paceline::comm {

/// What a connection is for; a proof for one purpose is not valid for another.
inline constexpr std::string_view kForStore = "store", kForServers = "parameter server", kForServersOverTls = "parameter server over TLS";

namespace handshake {

inline constexpr std::string_view kMagic{"PACELINE\3\0\0\0", 12};  // name and version
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kGreetingBytes = kMagic.size() + kNonceBytes;
inline constexpr std::size_t kResponseBytes = kNonceBytes + kHmacBytes;
inline constexpr std::size_t kProofBytes = kHmacBytes;
/// Sent to a client with another key, so that it does not try again. A client that is only late is disconnected, and may try again.
inline const std::string kRefusal(kProofBytes, '\0');

/// The server's side of one connection.
class Challenge {
 public:
  Challenge(std::string_view key, std::string_view purpose);

  std::string greeting() const { return std::string(kMagic) + nonce_; }
  /// The server's proof; nothing if the response was not made with the key for this greeting.
  std::optional<std::string> answer(std::string_view response) const;
  /// The same proof for a client whose response was made with the key for another purpose, so that a server that knows the key can tell it
  /// of its mistake; nothing if it was not.
  std::optional<std::string> correct(std::string_view response, std::string_view other_purpose) const;

 private:
  std::string key_, purpose_, nonce_;
};

/// The client's side of one connection.
class Response {
 public:
  /// Throws StrangerError if the greeting is not that of a server of this version. `other_purpose`: one that may be mistaken for ours.
  Response(std::string_view key, std::string_view purpose, std::string_view greeting, std::string_view other_purpose = {});

  const std::string& bytes() const { return bytes_; }
  /// Throws StrangerError if this is not the proof of a server that knows the key, OtherPurposeError if it is for the other purpose.
  void check(std::string_view proof) const;

 private:
  std::string bytes_, expected_, mistaken_;
};

}  // namespace handshake

/// The other end of a connection is another program, or belongs to another user or job.
class StrangerError : public Error {
 public:
  using Error::Error;
};

/// The other end does not greet: it waits for us to speak first, as most programs do, or is stopped.
class SilentError : public StrangerError {
 public:
  using StrangerError::StrangerError;
};

/// The other end knows the key, but expects connections of the other purpose.
class OtherPurposeError : public StrangerError {
 public:
  using StrangerError::StrangerError;
};

/// The client's side of the handshake on a fresh connection. Throws StrangerError if the other end is not the job's server, and
/// std::system_error if the connection fails or the deadline passes.
void authenticate(const Socket& socket, std::string_view key, std::string_view purpose, const Deadline& deadline,
                  std::string_view other_purpose = {});

}  // namespace paceline::comm

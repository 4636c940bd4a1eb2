// Mutual TLS 1.3 as bytes, by OpenSSL: both sides show a certificate that the other's authority signed, and the client checks that the
// server's certificate names the host it called.
//
// A session has no socket. Bytes from the network are fed to it, and bytes for the network are taken from it, so the code that carries
// them decides about deadlines and memory: connect_tls() for a client's handshake, Relay (relay.h) for everything else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/comm/sockets.h"

struct ssl_ctx_st;
struct ssl_st;

namespace paceline::comm {

/// PEM files of one side.
struct TlsFiles {
  std::string certificate, key, authority;
};

/// Our side rejected the other's certificate, the other side rejected ours, or it does not speak TLS.
class TlsError : public Error {
 public:
  using Error::Error;
};

/// The files, read and checked.
class TlsContext {
 public:
  /// Throws ConfigError for a file that cannot be read or holds something else, a key that does not match the certificate, or a build
  /// without OpenSSL.
  explicit TlsContext(const TlsFiles& files);

 private:
  friend class TlsSession;
  std::shared_ptr<ssl_ctx_st> context_;
};

class TlsSession {
 public:
  static TlsSession as_server(const TlsContext& context);
  /// `host`: the name or address that was dialled, which the server's certificate must contain.
  static TlsSession as_client(const TlsContext& context, const std::string& host);

  /// True once the handshake is over. The server then sends its client kTlsWelcome: in TLS 1.3 a client would otherwise not know whether
  /// its certificate was accepted. Throws TlsError, after which outgoing() has the alert for the other side.
  bool handshake();

  void feed(std::string_view encrypted);  ///< from the network
  void outgoing(std::string& into);       ///< appends what is to be sent
  void write(std::string_view plain);     ///< to be encrypted
  std::string read(std::size_t most);     ///< what was decrypted; empty: nothing yet, or has_ended(). Throws TlsError
  void end();                             ///< says goodbye
  bool has_ended() const { return ended_; }

 private:
  TlsSession(const TlsContext& context, bool server);
  [[noreturn]] void fail() const;

  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  bool server_, established_ = false, ended_ = false;
};

inline constexpr std::string_view kTlsWelcome = "PACELINE";

/// The client's handshake on a connection whose server has proved itself. Throws TlsError, and std::system_error if the connection fails or
/// the deadline passes.
void connect_tls(TlsSession& session, const Socket& socket, const Deadline& deadline);

}  // namespace paceline::comm

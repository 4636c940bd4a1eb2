#include "paceline/comm/tls.h"

#include <fmt/format.h>

#if PACELINE_WITH_OPENSSL
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

#include <array>

namespace paceline::comm {

#if PACELINE_WITH_OPENSSL

namespace {

constexpr std::size_t kRecordBytes = 16 << 10;

/// OpenSSL's text for the first error of this thread.
std::string reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* text = ERR_reason_error_string(code);
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  return text != nullptr ? text : fmt::format("OpenSSL error {:x}", code);
}

/// An encrypted key would make OpenSSL ask for a passphrase at the terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

void use_key(SSL_CTX* context, const TlsFiles& files) {
  const std::unique_ptr<BIO, int (*)(BIO*)> file(BIO_new_file(files.key.c_str(), "r"), BIO_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      file ? PEM_read_bio_PrivateKey(file.get(), nullptr, no_passphrase, nullptr) : nullptr, EVP_PKEY_free);
  if (!key)
    throw ConfigError(fmt::format("{}: cannot read a private key from it ({}); give a PEM file without a passphrase", files.key, reason()));
  if (X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) != 1) {
    ERR_clear_error();
    throw ConfigError(
        fmt::format("the private key in {} does not match the certificate in {}; give the key that the certificate was issued for",
                    files.key, files.certificate));
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) throw ConfigError(fmt::format("{}: {}", files.key, reason()));
}

}  // namespace

TlsContext::TlsContext(const TlsFiles& files) : context_(SSL_CTX_new(TLS_method()), SSL_CTX_free) {
  ERR_clear_error();
  ensure(context_ != nullptr, "OpenSSL has TLS");
  SSL_CTX* context = context_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);  // both sides are ours
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);  // no resumption: every connection shows its certificate
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);  // the authority may be an intermediate one
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    throw ConfigError(fmt::format("{}: cannot read a certificate from it ({}); give a PEM file", files.certificate, reason()));
  use_key(context, files);
  if (SSL_CTX_load_verify_locations(context, files.authority.c_str(), nullptr) != 1)
    throw ConfigError(fmt::format("{}: cannot read an authority's certificate from it ({}); give a PEM file", files.authority, reason()));
}

TlsSession::TlsSession(const TlsContext& context, bool server) : session_(SSL_new(context.context_.get()), SSL_free), server_(server) {
  ensure(session_ != nullptr, "OpenSSL makes a session");
  SSL_set_bio(session_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  if (server) SSL_set_accept_state(session_.get());
  else SSL_set_connect_state(session_.get());
}

TlsSession TlsSession::as_server(const TlsContext& context) { return {context, true}; }

TlsSession TlsSession::as_client(const TlsContext& context, const std::string& host) {
  TlsSession session(context, false);
  X509_VERIFY_PARAM* expected = SSL_get0_param(session.session_.get());
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool is_number = X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1;
  ensure(is_number || X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size()) == 1, "OpenSSL takes the host's name");
  ERR_clear_error();
  return session;
}

void TlsSession::fail() const {
  const std::string what = reason();
  const long verdict = SSL_get_verify_result(session_.get());
  throw TlsError(verdict == X509_V_OK ? what : fmt::format("{}: {}", what, X509_verify_cert_error_string(verdict)));
}

bool TlsSession::handshake() {
  if (established_) return true;
  ERR_clear_error();
  const int done = SSL_do_handshake(session_.get());
  if (done != 1) {
    const int error = SSL_get_error(session_.get(), done);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
    fail();
  }
  established_ = true;
  if (server_) write(kTlsWelcome);
  return true;
}

void TlsSession::feed(std::string_view encrypted) {
  BIO_write(SSL_get_rbio(session_.get()), encrypted.data(), static_cast<int>(encrypted.size()));
}

void TlsSession::outgoing(std::string& into) {
  BIO* from = SSL_get_wbio(session_.get());
  const std::size_t old = into.size(), more = BIO_ctrl_pending(from);
  if (more == 0) return;
  into.resize(old + more);
  BIO_read(from, into.data() + old, static_cast<int>(more));
}

void TlsSession::write(std::string_view plain) {
  if (plain.empty()) return;
  ERR_clear_error();
  if (SSL_write(session_.get(), plain.data(), static_cast<int>(plain.size())) <= 0) fail();  // a memory buffer takes all of it
}

std::string TlsSession::read(std::size_t most) {
  std::array<char, kRecordBytes> bytes;
  ERR_clear_error();
  const int got = SSL_read(session_.get(), bytes.data(), static_cast<int>(std::min(most, bytes.size())));
  if (got > 0) return {bytes.data(), static_cast<std::size_t>(got)};
  const int error = SSL_get_error(session_.get(), got);
  if (error == SSL_ERROR_ZERO_RETURN) ended_ = true;
  else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) fail();
  return {};
}

void TlsSession::end() {
  if (established_) SSL_shutdown(session_.get());
  ERR_clear_error();
}

#else

TlsContext::TlsContext(const TlsFiles&) {
  throw ConfigError("this build has no OpenSSL, which TLS needs; install libssl-dev and build again, or leave out the certificates");
}
TlsSession::TlsSession(const TlsContext&, bool server) : session_(nullptr, [](ssl_st*) {}), server_(server) {}
TlsSession TlsSession::as_server(const TlsContext& context) { return {context, true}; }
TlsSession TlsSession::as_client(const TlsContext& context, const std::string&) { return {context, false}; }
void TlsSession::fail() const { throw TlsError("this build has no OpenSSL"); }
bool TlsSession::handshake() { fail(); }
void TlsSession::feed(std::string_view) {}
void TlsSession::outgoing(std::string&) {}
void TlsSession::write(std::string_view) {}
std::string TlsSession::read(std::size_t) { return {}; }
void TlsSession::end() {}

#endif

namespace {

void send_outgoing(TlsSession& session, const Socket& socket, const Deadline& deadline) {
  std::string bytes;
  session.outgoing(bytes);
  send_all(socket, bytes, deadline);
}

void step(TlsSession& session, const Socket& socket, const Deadline& deadline) {
  send_outgoing(session, socket, deadline);
  session.feed(receive_some(socket, deadline));
}

}  // namespace

void connect_tls(TlsSession& session, const Socket& socket, const Deadline& deadline) {
  try {
    while (!session.handshake()) step(session, socket, deadline);
    std::string welcome;
    while ((welcome += session.read(kTlsWelcome.size() - welcome.size())).size() < kTlsWelcome.size()) {
      if (session.has_ended()) throw std::system_error(ECONNRESET, std::system_category(), "TLS");
      step(session, socket, deadline);
    }
    if (welcome != kTlsWelcome) throw TlsError("the server does not speak Paceline's protocol");
  } catch (const TlsError&) {
    try {
      send_outgoing(session, socket, deadline);  // sends the alert, so that the server also reports which side failed
    } catch (const std::system_error&) {
    }
    throw;
  }
}

}  // namespace paceline::comm

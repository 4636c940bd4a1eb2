#include "paceline/base/hmac.h"

#if PACELINE_WITH_OPENSSL
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

#include "paceline/base/entropy.h"
#include "paceline/base/error.h"

namespace paceline {

#if PACELINE_WITH_OPENSSL

std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string tag(kHmacBytes, '\0');
  unsigned int length = 0;
  const auto* bytes = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(data.data()),
                           data.size(), reinterpret_cast<unsigned char*>(tag.data()), &length);
  ensure(bytes != nullptr && length == kHmacBytes, "OpenSSL computes HMAC-SHA-256");
  return tag;
}

bool equal_in_constant_time(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

#else

namespace {

[[noreturn]] void refuse_without_openssl() {
  throw ConfigError(
      "this build has no OpenSSL, which the processes of a job need to authenticate each other; install libssl-dev and build again, or run "
      "the workers as threads of one process");
}

}  // namespace

std::string hmac_sha256(std::string_view, std::string_view) { refuse_without_openssl(); }
bool equal_in_constant_time(std::string_view, std::string_view) { refuse_without_openssl(); }

#endif

std::string public_name(std::string_view key, std::string_view purpose) { return hex(hmac_sha256(key, purpose).substr(0, 8)); }

}  // namespace paceline

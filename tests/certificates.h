// Authorities and certificates for tests of TLS, made by the openssl program.
#pragma once

#include <cstdlib>
#include <string>

#include "paceline/base/temporary_folder.h"

namespace paceline {

class Certificates {
 public:
  static bool possible() { return std::system("openssl version >/dev/null 2>&1") == 0; }

  void make_authority(const std::string& name) const {
    openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + name + " -keyout " + name + ".key -out " +
            name + ".pem");
  }
  /// NAME.pem and NAME.key, for a host as certificates name it.
  void make(const std::string& name, const std::string& authority, const std::string& host = "IP:127.0.0.1") const {
    openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -addext subjectAltName=" + host + " -keyout " +
            name + ".key -out " + name + ".csr");
    openssl("x509 -req -in " + name + ".csr -CA " + authority + ".pem -CAkey " + authority +
            ".key -CAcreateserial -days 2 -copy_extensions copy -out " + name + ".pem");
  }
  std::string file(const std::string& name) const { return folder_ / name; }

 private:
  void openssl(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() + " && openssl " + arguments + " >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  }

  TemporaryFolder folder_;
};

}  // namespace paceline

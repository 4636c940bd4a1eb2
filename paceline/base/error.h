// The errors of Paceline. Every failure that a user can see is one of these four; the type says who must act.
//
// A message says, in one line, what is wrong and where, what was expected, and what to do. The library never calls exit(): main() maps
// ConfigError and DataError to exit code 2 and everything else to 1.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace paceline {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked for something impossible: an unknown key, a wrong type, sizes that do not match.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file is not what it should be. The message starts with its name.
class DataError : public Error {
 public:
  DataError(const std::string& file, const std::string& what) : Error(file + ": " + what), file_(file) {}
  DataError(const std::string& file, std::int64_t offset, const std::string& what)
      : Error(file + ", byte " + std::to_string(offset) + ": " + what), file_(file), offset_(offset) {}

  const std::string& file() const { return file_; }
  std::int64_t offset() const { return offset_; }  ///< -1 if no single byte is the cause

 private:
  std::string file_;
  std::int64_t offset_ = -1;
};

/// Another rank died, is late, or called another operation. The only error that recovery handles.
class PeerError : public Error {
 public:
  PeerError(int rank, const std::string& operation, std::int64_t step, const std::string& what)
      : Error(what), rank_(rank), operation_(operation), step_(step) {}

  int rank() const { return rank_; }
  const std::string& operation() const { return operation_; }
  std::int64_t step() const { return step_; }

 private:
  int rank_;
  std::string operation_;
  std::int64_t step_;
};

/// The rank was given up because it was silent for silent(): it is stopped or unreachable.
class PeerSilent : public PeerError {
 public:
  PeerSilent(int rank, const std::string& operation, std::int64_t step, const std::string& what, std::chrono::nanoseconds silent)
      : PeerError(rank, operation, step, what), silent_(silent) {}

  std::chrono::nanoseconds silent() const { return silent_; }

 private:
  std::chrono::nanoseconds silent_;
};

/// A bug of Paceline: an invariant did not hold.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Throws InternalError unless `holds`.
inline void ensure(bool holds, const char* invariant) {
  if (!holds) throw InternalError(std::string("internal error, please report it: ") + invariant);
}

}  // namespace paceline

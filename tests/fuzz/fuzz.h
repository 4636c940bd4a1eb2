// What the fuzz targets share. A target is one function, LLVMFuzzerTestOneInput, that gives bytes to one parser (docs/checks.md,
// Fuzzing).
//
// A parser may refuse its input with a ConfigError or a DataError. A finding is anything else: another exception, a crash, a leak, a hang,
// memory out of proportion to the input, or a promise of the parser's that does not hold.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "paceline/base/descriptor.h"
#include "paceline/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace paceline::fuzz {

/// Ends the program, which makes the input a finding.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// Runs a parser, which may refuse.
template <class Parse>
int parse(const Parse& run) {
  try {
    run();
  } catch (const ConfigError&) {
  } catch (const DataError&) {
  }
  return 0;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// Hands out an input piece by piece; zeros once it is used up.
class Pieces {
 public:
  Pieces(const std::uint8_t* data, std::size_t size) : left_(text_of(data, size)) {}

  bool empty() const { return left_.empty(); }
  std::string_view bytes(std::size_t most) {
    const std::string_view taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }
  template <class T>
  T value() {
    T result{};
    const std::string_view taken = bytes(sizeof(T));
    std::memcpy(&result, taken.data(), taken.size());
    return result;
  }

 private:
  std::string_view left_;
};

/// The input as a file, in memory, for parsers that open one.
class InputFile {
 public:
  explicit InputFile(std::string_view content = {}) : memory_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    while (!content.empty()) {
      const ssize_t written = ::write(memory_.get(), content.data(), content.size());
      require(written > 0, "a file in memory can be written");
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  InputFile(const std::uint8_t* data, std::size_t size) : InputFile(text_of(data, size)) {}

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(memory_.get()); }

 private:
  Descriptor memory_;
};

}  // namespace paceline::fuzz

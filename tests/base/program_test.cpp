#include "paceline/base/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "paceline/base/descriptor.h"

namespace paceline {
namespace {

TEST(Program, StandardStreamsThatAreClosedStayUnusableAndNoFileGetsTheirNumbers) {
  constexpr int kGood = 7;
  const auto without_streams = [] {
    for (int stream : {0, 1, 2}) ::close(stream);
    ::_exit(run_program([] {
      const Descriptor file(::open("/dev/zero", O_RDWR));
      char byte = 'x';
      const bool refused = ::read(0, &byte, 1) < 0 && ::write(1, &byte, 1) < 0 && ::write(2, &byte, 1) < 0;
      return refused && file.get() > 2 ? kGood : 1;
    }));
  };
  EXPECT_EXIT(without_streams(), testing::ExitedWithCode(kGood), "");
}

/// The exit code and what stands on standard error.
std::pair<int, std::string> ended(const std::function<int()>& body) {
  testing::internal::CaptureStderr();
  const int code = run_program(body);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(Program, AnErrorIsOneLineWithoutTheStackThatLibTorchAddsToIt) {
  const auto failing = [](const char* what) { return [what]() -> int { throw std::runtime_error(what); }; };
  EXPECT_EQ(ended(failing("shapes differ\nException raised from check at a.cpp:1 (most recent call first):\nframe #0: f + 0x3d (0x7f)")),
            std::pair(1, std::string("error: shapes differ\n")));
  EXPECT_EQ(ended(failing("DefaultCPUAllocator: can't allocate memory: 12 bytes\nframe #0: f + 0x3d (0x7f)\nframe #1: g")).second,
            "error: DefaultCPUAllocator: can't allocate memory: 12 bytes; lower data.batch, or take a smaller model or fewer workers\n");
}

TEST(Program, OutOfMemorySaysWhatToLower) {
  EXPECT_EQ(ended([]() -> int { throw std::bad_alloc(); }),
            std::pair(1, std::string(
                             "error: there is not enough memory for this; lower data.batch, or take a smaller model or fewer workers\n")));
}

}  // namespace
}  // namespace paceline

#include "paceline/base/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "paceline/base/descriptor.h"

namespace paceline {
namespace {

const std::string kNoMemory = "error: not enough memory; lower data.batch, or use a smaller model or fewer workers\n";

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
            kNoMemory);
}

TEST(Program, OutOfMemorySaysWhatToLower) {
  EXPECT_EQ(ended([]() -> int { throw std::bad_alloc(); }), std::pair(1, kNoMemory));
}

TEST(Program, WhatAThreadThrowsIsOneLineToo) {
  const auto throws_in_thread = [] {
    return run_program([]() -> int {
      std::thread([] { throw std::bad_alloc(); }).join();
      return 0;
    });
  };
  EXPECT_EXIT(std::exit(throws_in_thread()), testing::ExitedWithCode(1), "^error: not enough memory[^\n]*\n$");
}

TEST(Program, TooManyOpenFilesNamesTheLimit) {
  const auto [code, line] = ended([]() -> int { throw std::system_error(EMFILE, std::system_category(), "eventfd"); });
  EXPECT_EQ(code, 1);
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_NE(line.find("ulimit -n"), std::string::npos) << line;
}

TEST(Program, ALimitOfMemoryIsNoticedBeforeItIsReached) {
  EXPECT_NO_THROW(ensure_address_space(std::uint64_t(1) << 20));
  const auto limited = [] {
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (64 << 20);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    ::_exit(run_program([] {
      ensure_address_space(16 << 20);
      ensure_address_space(128 << 20);
      return 0;
    }));
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(1), "^error: [^\n]*ulimit -v[^\n]*128 MiB[^\n]*\n$");
}

}  // namespace
}  // namespace paceline

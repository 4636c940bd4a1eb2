#include "paceline/base/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace paceline

// Which address a host listens at.
#include "paceline/comm/engines/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/base/host.h"

namespace paceline::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OwnAddress : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    unsetenv("PACELINE_INTERFACE");
    unsetenv("GLOO_SOCKET_IFNAME");
  }
  static std::string refusal(const std::string& peer) {
    try {
      return "it is " + own_address(peer, true);
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
};

TEST_F(OwnAddress, IsLoopbackOnlyForOneHost) { EXPECT_TRUE(names_loopback(own_address("192.0.2.1", false))); }

TEST_F(OwnAddress, IsTheSourceOfTheRouteToRank0) { EXPECT_EQ(own_address("127.0.0.1", true), "127.0.0.1"); }

TEST_F(OwnAddress, IsThatOfTheNamedInterfaceOursFirst) {
  setenv("GLOO_SOCKET_IFNAME", "no_such_interface", 1);
  EXPECT_THAT(refusal("127.0.0.1"), AllOf(HasSubstr("GLOO_SOCKET_IFNAME=no_such_interface"), HasSubstr("lo")));
  setenv("PACELINE_INTERFACE", "lo", 1);
  EXPECT_EQ(own_address("192.0.2.1", true), "127.0.0.1");
}

TEST_F(OwnAddress, CannotBeFoundForANameThatDoesNotResolve) {
  EXPECT_THAT(refusal("no-such-host.invalid"), AllOf(HasSubstr("no-such-host.invalid"), HasSubstr("MASTER_ADDR")));
}

}  // namespace
}  // namespace paceline::comm

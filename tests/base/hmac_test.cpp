#include "paceline/base/hmac.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "paceline/base/entropy.h"
#include "paceline/base/error.h"
#include "paceline/base/key_file.h"
#include "paceline/base/temporary_folder.h"

namespace paceline {
namespace {

// RFC 4231, test cases 1, 2 and 6.
TEST(Hmac, ComputesAsPublished) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparesWholeTexts) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST(Hmac, NamesAKeyWithoutShowingIt) {
  EXPECT_EQ(public_name("key", "job").size(), 16);
  EXPECT_NE(public_name("key", "job"), public_name("key", "store"));
  EXPECT_NE(public_name("key", "job"), public_name("other", "job"));
}

TEST(KeyFile, IsItsOwnersAlone) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "key";
  const mode_t before = ::umask(0);
  write_key(file, "secret");
  ::umask(before);
  EXPECT_EQ(static_cast<int>(std::filesystem::status(file).permissions()), 0600);
  EXPECT_EQ(read_key(file), "secret");
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  EXPECT_THROW(read_key(file), ConfigError);
}

TEST(KeyFile, RefusesWhatIsNoKey) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_key(folder.path() / "none"), DataError);
  EXPECT_THROW(read_key(folder.path()), Error);
  const auto file = folder.path() / "key";
  for (const std::string& content : {std::string(), std::string("\n"), std::string(100'000, 'x')}) {
    std::filesystem::remove(file);
    std::ofstream(file) << content;
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    EXPECT_THROW(read_key(file), DataError);
  }
}

}  // namespace
}  // namespace paceline

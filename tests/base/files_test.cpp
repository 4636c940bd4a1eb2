#include "paceline/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator())); }

  const TemporaryFolder own;
  const fs::path folder = own.path();
};

TEST_F(FilesTest, WhatIsWrittenReadsBackAndReplacesTheOld) {
  write_atomically(folder / "a", "old");
  const FileStamp stamp = write_atomically(folder / "a", "new and longer");
  EXPECT_EQ(read_file(folder / "a"), "new and longer");
  EXPECT_EQ(stamp.bytes, 14);
  EXPECT_EQ(stamp.crc32c, crc32c(bytes_of("new and longer")));
  EXPECT_EQ(entries(), 1u);
  write_atomically(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST_F(FilesTest, AnUncommittedFileLeavesNoTrace) {
  write_atomically(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("half of the ne");
    EXPECT_EQ(read_file(folder / "a"), "old");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, AFullDiskKeepsTheOldFile) {
  write_atomically(folder / "a", "old");
  // The limit on the size of a file stands in for a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    write_atomically(folder / "a", std::string(5000, 'x'));
  } catch (const DataError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr((folder / "a").string() + ": cannot write: File too large"));
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, ALinkStaysAndWhatItNamesIsReplaced) {
  fs::create_directory(folder / "there");
  write_atomically(folder / "there/a", "old");
  fs::create_symlink("there/a", folder / "link");
  fs::create_symlink("link", folder / "again");
  fs::create_symlink("there/none", folder / "dangling");
  write_atomically(folder / "again", "new");
  write_atomically(folder / "dangling", "made");
  for (const char* link : {"link", "again", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  EXPECT_EQ(read_file(folder / "there/a"), "new");
  EXPECT_EQ(read_file(folder / "there/none"), "made");
}

TEST_F(FilesTest, WhatIsNoRegularFileIsNotReplaced) {
  const auto refused = [&](const char* name, const char* why) {
    try {
      write_atomically(folder / name, "x");
      ADD_FAILURE() << name << " was written";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + ": " + why));
    }
  };
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", folder / "link");
  fs::create_directory(folder / "folder");
  fs::create_symlink("loop", folder / "loop");
  for (const char* name : {"fifo", "link", "folder"}) refused(name, "is not a regular file");
  refused("loop", "cannot write: Too many levels of symbolic links");
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
  EXPECT_EQ(entries(), 4u);
}

TEST_F(FilesTest, ErrorsNameTheFileAndTheReason) {
  const auto message_of = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of([&] { read_file(folder / "none"); }), HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(message_of([&] { read_file(folder); }), HasSubstr("is not a file"));
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);  // nobody will ever write into it
  EXPECT_THAT(message_of([&] { read_file(folder / "fifo"); }), HasSubstr("fifo: is not a file"));
  EXPECT_THAT(message_of([&] { MappedFile mapped(folder / "fifo"); }), HasSubstr("fifo: is not a file"));
  EXPECT_THAT(message_of([&] { MappedFile mapped(folder / "none"); }), HasSubstr("none: cannot open: No such file"));
  EXPECT_THAT(message_of([&] { write_atomically(folder / "none/a", "x"); }), HasSubstr("none/a: cannot write: No such file"));
  write_atomically(folder / "a", "x");
  EXPECT_THAT(message_of([&] { write_atomically(folder / "a/b", "x"); }), HasSubstr("a/b: cannot write: Not a directory"));
}

TEST_F(FilesTest, AFolderIsMadeOrRefusedWithAReason) {
  ensure_writable_folder(folder / "x/y");
  EXPECT_TRUE(fs::is_directory(folder / "x/y"));
  EXPECT_TRUE(fs::is_empty(folder / "x/y"));
  ensure_writable_folder(folder / "x/y");
  write_atomically(folder / "a", "x");
  EXPECT_THROW(ensure_writable_folder(folder / "a"), ConfigError);
  EXPECT_THROW(ensure_writable_folder(folder / "a/b"), ConfigError);
  EXPECT_THROW(ensure_writable_folder("/proc/paceline"), ConfigError);
}

TEST_F(FilesTest, AMappingHoldsTheBytesAndMoves) {
  write_atomically(folder / "a", "mapped");
  write_atomically(folder / "empty", "");
  MappedFile first(folder / "a");
  MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.bytes().data()), second.bytes().size()), "mapped");
  second = MappedFile(folder / "empty");
  EXPECT_TRUE(second.bytes().empty());
}

TEST(Folders, OfAWhileAreOnesOwnAndGoWithAllThatIsInThem) {
  fs::path first;
  {
    const TemporaryFolder one, other;
    EXPECT_NE(one.path(), other.path());
    fs::create_directories(one / "a" / "b");
    write_atomically(one / "a" / "b" / "file", "x");
    first = one.path();
  }
  EXPECT_FALSE(fs::exists(first));
}

TEST(Folders, ThatCannotBeMadeSayHowToMendIt) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/nowhere/at/all", 1);
  std::string message;
  try {
    const TemporaryFolder folder;
  } catch (const ConfigError& error) {
    message = error.what();
  }
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_THAT(message, HasSubstr("set TMPDIR"));
}

}  // namespace
}  // namespace paceline

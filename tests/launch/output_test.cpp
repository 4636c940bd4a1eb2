// Many ranks on one screen.
#include "paceline/launch/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "paceline/base/files.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/launch/launcher.h"
#include "paceline/launch/ssh_rank.h"

namespace paceline::launch {
namespace {

/// An Output whose text is collected, standard output and standard error as one screen would show them.
struct Screen {
  explicit Screen(OutputOptions options = {})
      : output(options, [this](Stream stream, std::string_view text) { (stream == Stream::out ? out : err) += text, both += text; }) {}

  std::string out, err, both;
  Output output;
};

OutputOptions on_terminal() {
  OutputOptions options;
  options.out.live = options.err.live = true;
  return options;
}

TEST(Output, PutsTheRankBeforeWholeLines) {
  Screen screen;
  screen.output.receive(0, Stream::out, "one\ntw");
  screen.output.receive(1, Stream::out, "other\n");
  screen.output.receive(1, Stream::err, "trouble\n");
  screen.output.receive(0, Stream::out, "o\n\n");
  EXPECT_EQ(screen.out, "[0] one\n[1] other\n[0] two\n[0] \n");
  EXPECT_EQ(screen.err, "[1] trouble\n");
}

TEST(Output, WritesTheRestAtTheEnd) {
  Screen screen;
  screen.output.receive(3, Stream::out, "no newline");
  EXPECT_EQ(screen.out, "");
  screen.output.end(3, Stream::out);
  screen.output.end(3, Stream::out);
  screen.output.end(3, Stream::err);
  EXPECT_EQ(screen.both, "[3] no newline\n");
}

TEST(Output, BreaksEndlessLines) {
  Screen screen;
  for (int i = 0; i < 100; ++i) screen.output.receive(0, Stream::out, std::string(1000, 'x'));
  EXPECT_EQ(screen.out.size(), 4 + (64 << 10) + 1U);
}

TEST(Output, KeepsWhatABarShowedLastWhereThereIsNoTerminal) {
  Screen screen;
  screen.output.receive(0, Stream::err, "10%\r50%\r");
  screen.output.receive(0, Stream::err, "100%\r\nnext\r\n");
  screen.output.receive(0, Stream::err, "halfway\r");
  screen.output.end(0, Stream::err);
  EXPECT_EQ(screen.err, "[0] 100%\n[0] next\n[0] halfway\n");
}

TEST(Output, DrawsTheBarOfTheLowestRankBelowTheLines) {
  Screen screen(on_terminal());
  screen.output.receive(1, Stream::err, "b1\r");
  screen.output.receive(0, Stream::err, "a1\r");
  screen.output.receive(1, Stream::err, "b2\r");  // rank 0 has the line
  EXPECT_EQ(screen.both, "\r\x1b[K[1] b1\r\x1b[K[0] a1");
  screen.both.clear();
  screen.output.receive(1, Stream::out, "line\n");
  EXPECT_EQ(screen.both, "\r\x1b[K[1] line\n\r\x1b[K[0] a1");
  screen.both.clear();
  screen.output.receive(0, Stream::err, "done\n");
  EXPECT_EQ(screen.both, "\r\x1b[K[0] done\n");
  screen.both.clear();
  screen.output.receive(1, Stream::out, "line\n");
  EXPECT_EQ(screen.both, "[1] line\n");
}

TEST(Output, ColoursRanksOnATerminal) {
  OutputOptions options;
  options.out.color = true;
  Screen screen(options);
  screen.output.receive(0, Stream::out, "a\n");
  screen.output.receive(1, Stream::out, "b\n");
  EXPECT_EQ(screen.out, "\x1b[36m[0]\x1b[0m a\n\x1b[33m[1]\x1b[0m b\n");
}

TEST(Output, CallsServersAndWorkersByTheirNames) {
  OutputOptions options;
  options.servers = 2;
  Screen screen(options);
  screen.output.receive(1, Stream::out, "a\n");
  screen.output.receive(2, Stream::out, "b\n");
  EXPECT_EQ(screen.out, "[server 1] a\n[worker 0] b\n");
}

TEST(Output, MakesRoomForOtherLines) {
  Screen screen(on_terminal());
  screen.output.make_room([&] { screen.both += "first\n"; });
  screen.output.receive(0, Stream::err, "bar\r");
  screen.both.clear();
  screen.output.make_room([&] { screen.both += "second\n"; });
  EXPECT_EQ(screen.both, "\r\x1b[Ksecond\n\r\x1b[K[0] bar");
}

TEST(Output, CanLeaveThePrefixOut) {
  OutputOptions options;
  options.prefix = false;
  Screen screen(options);
  screen.output.receive(0, Stream::out, "a");
  screen.output.receive(1, Stream::out, "b\n");
  screen.output.receive(0, Stream::out, "a\n");
  EXPECT_EQ(screen.out, "b\naa\n");
}

TEST(Output, CanGiveOneRankByteForByte) {
  OutputOptions options;
  options.only = 1;
  Screen screen(options);
  screen.output.receive(0, Stream::out, "not this\n");
  screen.output.receive(1, Stream::out, "{\"a\":\r1");
  screen.output.receive(1, Stream::out, "}");
  screen.output.receive(0, Stream::err, "but errors\n");
  screen.output.end(1, Stream::out);
  EXPECT_EQ(screen.out, "{\"a\":\r1}");
  EXPECT_EQ(screen.err, "[0] but errors\n");
}

TEST(Output, KeepsFiles) {
  OutputOptions options;
  const TemporaryFolder folder;
  options.folder = folder.path();
  {
    Screen screen(options);
    screen.output.receive(2, Stream::out, "a\r");
    screen.output.receive(2, Stream::err, "b\n");
  }
  EXPECT_EQ(read_file(options.folder / "rank-2.log"), "a\rb\n");
}

TEST(Output, SaysOnceThatAFileCannotBeKept) {
  OutputOptions options;
  const TemporaryFolder folder;
  options.folder = folder.path();
  std::filesystem::create_directory(options.folder / "rank-2.log");
  std::filesystem::create_symlink("/dev/full", options.folder / "rank-3.log");
  testing::internal::CaptureStderr();
  Screen screen(options);
  for (int rank : {2, 3, 2, 3}) screen.output.receive(rank, Stream::out, "a\n");
  const std::string name = (options.folder / "rank-").string(), end = "; the rank's output is not written to it from now on\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: " + name + "2.log: Is a directory" + end + "warning: " + name + "3.log: No space left on device" + end);
  EXPECT_EQ(screen.out, "[2] a\n[3] a\n[2] a\n[3] a\n");
}

TEST(OutputQueue, WritesInOrderAndSurvivesAReaderThatGoes) {
  Pipe pipe = make_pipe();
  OutputQueue queue;
  const std::string large(10'000, 'x');
  queue.push(pipe.write.get(), large);
  queue.push(pipe.write.get(), "end");
  while (!queue.empty()) queue.pump();
  std::string got(20'000, '\0');
  got.resize(static_cast<std::size_t>(::read(pipe.read.get(), got.data(), got.size())));
  EXPECT_EQ(got, large + "end");

  std::signal(SIGPIPE, SIG_IGN);
  pipe.read.reset();
  queue.push(pipe.write.get(), "nobody");
  queue.pump();
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.full());
  queue.push(pipe.write.get(), std::string(2 << 20, 'x'));
  EXPECT_TRUE(queue.full());
}

/// Starts one rank with a shell program, and a reader of its output.
int launch_into(int reader, const std::string& script) {
  Job job;
  job.placement = place_ranks({}, {1, [](const std::string&) { return true; }});
  job.program = {"sh", "-c", script};
  job.grace = std::chrono::milliseconds(20);
  job.output.only = 0;
  const Descriptor before(::dup(STDOUT_FILENO));
  ::dup2(reader, STDOUT_FILENO);
  const int code = launch(job).code;
  ::dup2(before.get(), STDOUT_FILENO);
  return code;
}

TEST(Launch, WaitsForAReaderThatPauses) {
  const TemporaryFolder folder;
  std::FILE* reader = ::popen(("sleep 0.2; wc -c > " + (folder / "count").string()).c_str(), "w");
  // More than the reader's pipe and the queue hold: the last of it still lies in the rank's pipe when the rank ends.
  EXPECT_EQ(launch_into(::fileno(reader), "head -c 1180000 /dev/zero"), 0);
  ::pclose(reader);
  EXPECT_EQ(read_file(folder / "count"), "1180000\n");
}

TEST(Launch, WaitsForNoReaderOnceItIsToldNotTo) {
  const Pipe pipe = make_pipe();
  EXPECT_EQ(launch_into(pipe.write.get(), "head -c 200000 /dev/zero; (sleep 0.1; kill -TERM $PPID) > /dev/null 2>&1 &"), 0);
}

TEST(Remote, QuotesForAShell) {
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("it's $HOME"), "'it'\\''s $HOME'");
  const std::vector<std::string> words = ssh_command({{"ssh", "-p", "22"}, "b", "/a b", {"RANK=1"}, 2, {"prog", "x y"}});
  EXPECT_THAT(words, testing::ElementsAre("ssh", "-p", "22", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "b",
                                          testing::StartsWith("exec sh -c '")));
}

TEST(Process, SaysHowItEnded) {
  EXPECT_EQ((Exit{3, 0}.text()), "exited with code 3");
  EXPECT_EQ((Exit{0, 9}.text()), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ((Exit{0, 9}.shell_code()), 137);
  EXPECT_TRUE(Exit{}.good());
}

}  // namespace
}  // namespace paceline::launch

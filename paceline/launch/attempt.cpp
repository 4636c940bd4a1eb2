#include "paceline/launch/attempt.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "paceline/base/affinity.h"
#include "paceline/base/host.h"
#include "paceline/base/run_program.h"
#include "paceline/launch/ssh_rank.h"
#include "paceline/launch/this_host.h"
#include "paceline/launch/variables.h"

namespace paceline::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kSshFailed = 255;
constexpr int kPatience = 3;  // after this many signals the ranks are killed
constexpr std::size_t kReadSize = 16 << 10;
constexpr int kReadsOfFullPipe = (1 << 20) / kReadSize;

/// How a remote rank ended, according to its ssh: the shell there returns 128 + signal.
Exit seen_through_ssh(const Exit& exit) {
  return exit.signal == 0 && exit.code > 128 && exit.code < kSshFailed ? Exit{0, exit.code - 128} : exit;
}

bool lost_by_ssh(const Rank& rank) { return !rank.place.here && rank.exit->code == kSshFailed; }

Descriptor& pipe_of(Rank& rank, Stream stream) { return stream == Stream::out ? rank.process.out : rank.process.err; }

bool readable(const Descriptor& pipe) {
  pollfd entry{pipe.get(), POLLIN, 0};  // -1 is never ready
  return ::poll(&entry, 1, 0) > 0;
}

/// A line on the lifeline of a remote rank.
void tell(const Rank& rank, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(rank.process.in.get(), text.data(), text.size());  // if it is gone, so is the rank
}

}  // namespace

std::string Rank::who() const {
  if (!place.here) return fmt::format("{} (host {})", role.name(), place.host);
  return fmt::format("{} (pid {}, host {})", role.name(), process.pid, host_name());
}

std::string Rank::how() const {
  if (!given_up.empty()) return given_up;
  return lost_by_ssh(*this) ? "could not be started or lost its connection (ssh)" : exit->text();
}

std::string Rank::end() const {
  if (!given_up.empty()) return fmt::format("{} {}", who(), given_up);
  return fmt::format("{} {} after {:.0f} s", who(), how(), seconds(lived));
}

int Rank::code() const { return lost_by_ssh(*this) || !given_up.empty() ? 1 : exit->shell_code(); }

Attempt::Attempt(const Job& job, const Signals& signals, Output& output, OutputQueue& queue, int restarts)
    : job_(job), signals_(signals), output_(output), queue_(queue) {
  for (const Place& place : job.placement.places) {
    ranks_.push_back({.place = place, .role = Role::of(place.rank, job.servers), .restarts = restarts, .process = {}, .exit = {}});
    start(ranks_.back());
  }
}

Ending Attempt::run() {
  while (std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.exit; })) wait_for_something();
  // Processes that a rank started may be about to finish; they have the usual grace, which begins when their output is read again.
  const int heard = signals_heard_;
  Nanoseconds until = clock_.now() + job_.grace;
  while (any_pipe_open() && clock_.now() < until) {
    wait_for_something(until);
    if (queue_.full() && signals_heard_ == heard) until = clock_.now() + job_.grace;
  }
  for (Rank& rank : ranks_) close_pipes(rank);
  // A reader that pauses (`… | less`) still gets the rest, however late, unless a signal ends the wait.
  queue_.pump_what_goes();
  while (!queue_.empty() && signals_heard_ == heard) wait_for_something();
  Ending result = ending();
  for (const Rank& rank : ranks_)
    result.ranks.push_back({.rank = rank.place.rank,
                            .name = rank.role.name(),
                            .host = rank.place.here ? host_name() : rank.place.host,
                            .how = rank.how(),
                            .code = rank.code(),
                            .restarts = rank.restarts,
                            .lived = rank.lived});
  return result;
}

void Attempt::start(Rank& rank) {
  const Place& place = rank.place;
  std::vector<std::string> variables = rank_variables(job_, place, rank.restarts);
  const bool threads_set = has_variable(variables, "OMP_NUM_THREADS");
  rank.began = clock_.now();
  if (place.here) {
    set_variable(variables, "PACELINE_JOB=" + job_.token);
    if (!threads_set) variables.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1, usable_cores() / place.local_size)));
    // A terminal belongs to the launcher: a rank that read from it would be stopped. Any other input goes to rank 0.
    const bool reads = place.rank == 0 && !::isatty(0);
    rank.process =
        spawn({job_.program, environment_with(variables, job_), reads ? Command::Input::inherited : Command::Input::none}, here_);
  } else {
    if (!there_) there_.emplace();
    const RemoteRank remote{job_.ssh,    place.host, std::filesystem::current_path(), variables, threads_set ? 0 : place.local_size,
                            job_.program};
    rank.process = spawn({ssh_command(remote), environment_with({}, job_), Command::Input::pipe}, *there_);
    tell(rank, job_.token);
  }
}

void Attempt::start_again(Rank& rank) {
  read_last_words(rank);  // they are in the pipes, which are closed with the process
  close_pipes(rank);
  blame_lines_.forget(rank.place.rank);
  rank.exit.reset();
  ++rank.restarts;
  start(rank);
}

/// Reads what an ended rank left in its pipes. A pipe holds no more than this many reads take.
void Attempt::read_last_words(Rank& rank) {
  for (const Stream stream : {Stream::out, Stream::err})
    for (int reads = 0; reads < kReadsOfFullPipe && readable(pipe_of(rank, stream)); ++reads) read_pipe(rank, stream);
}

void Attempt::give_up(Rank& rank, std::string why) {
  rank.given_up = std::move(why);
  if (rank.place.here) ::kill(rank.process.pid, SIGKILL);
  else tell(rank, "KILL");
}

void Attempt::signal_all(int signal) {
  here_.signal(signal);
  for (const Rank& rank : ranks_)
    if (!rank.place.here && !rank.exit) tell(rank, signal_name(signal).substr(3));
}

void Attempt::wait_for_something(std::optional<Nanoseconds> until) {
  std::vector<pollfd> entries{{signals_.descriptor(), POLLIN, 0}, {queue_.empty() ? -1 : queue_.waiting_for(), POLLOUT, 0}};
  std::vector<std::pair<Rank*, Stream>> sources;
  if (!queue_.full())  // otherwise the ranks wait, as they would for a slow terminal
    for (Rank& rank : ranks_)
      for (const Stream stream : {Stream::out, Stream::err})
        if (const Descriptor& pipe = pipe_of(rank, stream)) {
          entries.push_back({pipe.get(), POLLIN, 0});
          sources.emplace_back(&rank, stream);
        }
  if (next_step_ && (!until || *next_step_ < *until)) until = next_step_;
  const auto left = until ? std::chrono::ceil<std::chrono::milliseconds>(*until - clock_.now()).count() : -1;
  const int ready = ::poll(entries.data(), entries.size(), until ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1);
  if (ready < 0 && errno != EINTR) throw std::system_error(errno, std::system_category(), "poll");
  if (ready > 0) {
    if (entries[1].revents != 0) queue_.pump();
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (entries[i + 2].revents != 0) read_pipe(*sources[i].first, sources[i].second);
    if (entries[0].revents != 0) hear_signals();
  }
  if (next_step_ && clock_.now() >= *next_step_) stop_harder();
}

bool Attempt::any_pipe_open() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.process.out || rank.process.err; });
}

void Attempt::read_pipe(Rank& rank, Stream stream) {
  char bytes[kReadSize];
  const ssize_t count = ::read(pipe_of(rank, stream).get(), bytes, sizeof(bytes));
  if (count > 0) return pass_on(rank, stream, {bytes, static_cast<std::size_t>(count)});
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  close_pipe(rank, stream);
}

void Attempt::pass_on(const Rank& rank, Stream stream, std::string_view bytes) {
  const int number = rank.place.rank;
  if (stream == Stream::out) return output_.receive(number, stream, bytes);
  if (const std::string shown = blame_lines_.filter(number, bytes); !shown.empty()) output_.receive(number, stream, shown);
}

void Attempt::close_pipe(Rank& rank, Stream stream) {
  const int number = rank.place.rank;
  if (const std::string rest = stream == Stream::err ? blame_lines_.rest(number) : ""; !rest.empty()) output_.receive(number, stream, rest);
  output_.end(number, stream);
  pipe_of(rank, stream).reset();
}

void Attempt::close_pipes(Rank& rank) {
  for (const Stream stream : {Stream::out, Stream::err}) close_pipe(rank, stream);
}

void Attempt::hear_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) continue;
    stopped_by_ = *signal;
    ++signals_heard_;
    if (*signal != SIGUSR1 && *signal != SIGUSR2 && ++urged_ >= kPatience) signal_all(SIGKILL);
    else signal_all(*signal);
  }
  reap_ranks();
}

void Attempt::reap_ranks() {
  std::vector<Rank*> ended;
  for (Rank& rank : ranks_) {
    if (rank.exit) continue;
    rank.exit = reap(rank.process.pid);
    if (!rank.exit) continue;
    if (!rank.place.here) rank.exit = seen_through_ssh(*rank.exit);
    rank.lived = clock_.now() - rank.began;
    read_last_words(rank);  // whom it blames, before the cause is decided
    ended.push_back(&rank);
  }
  if (!ended.empty()) judge(ended);
}

bool Attempt::failed(const Rank& rank) const {
  const auto obeyed = [&](int signal) { return rank.exit->code == kStopped || rank.exit->shell_code() == 128 + signal; };
  return !rank.exit->good() && !(stopped_by_ != 0 && obeyed(stopped_by_)) && !(asked_to_end_ && obeyed(SIGTERM));
}

void Attempt::stop_after(Nanoseconds grace) { next_step_ = clock_.now() + grace; }

void Attempt::stop_harder() {
  if (!asked_to_end_) {
    asked_to_end_ = true;
    signal_all(SIGTERM);
    stop_after(job_.grace);
  } else {
    signal_all(SIGKILL);
    stop_after(1s);  // for the remote side of an ssh
    if (killed_ && there_) there_->signal(SIGKILL);
    killed_ = true;
  }
}

Ending Attempt::ended_as_told() const {
  return {fmt::format("the ranks were ended by {}, which was passed on to them", signal_name(stopped_by_)), 128 + stopped_by_, stopped_by_};
}

}  // namespace paceline::launch

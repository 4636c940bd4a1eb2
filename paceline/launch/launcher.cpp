#include "paceline/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/launch/network.h"
#include "paceline/launch/process.h"
#include "paceline/launch/remote.h"

extern char** environ;

namespace paceline::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kWrongInput = 2, kStopped = 3;  // exit codes of our own programs
constexpr int kSshFailed = 255;
constexpr int kPatience = 3;  // so many signals, and the ranks are killed

/// Takes signals as something to read, and gives them back as they were.
class Signals {
 public:
  Signals() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : kPassedOn) sigaddset(&taken, signal);
    sigaddset(&taken, SIGCHLD);
    sigaddset(&taken, SIGPIPE);  // a reader of ours may go; the ranks do not
    ::sigprocmask(SIG_BLOCK, &taken, &before_);
    sigdelset(&taken, SIGPIPE);
    queue_ = Descriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!queue_) throw std::system_error(errno, std::system_category(), "signalfd");
  }
  ~Signals() {
    const timespec now{};
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (::sigtimedwait(&pipe, nullptr, &now) > 0) {
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return queue_.get(); }
  std::optional<int> next() const {
    signalfd_siginfo info;
    if (::read(queue_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_;
  Descriptor queue_;
};

std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) throw std::system_error(errno, std::system_category(), "getrandom");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

/// Where the ranks can reach rank 0.
std::string meeting_address(const Plan& plan) {
  if (plan.one_host()) return "127.0.0.1";
  const Place& first = plan.places.front();
  if (!first.here) return first.host.substr(first.host.find('@') + 1);
  const auto other = std::ranges::find_if(plan.places, [](const Place& place) { return !place.here; });
  ensure(other != plan.places.end(), "a job of several launchers has an address");
  return address_towards(other->host);
}

struct Rank {
  Place place;
  Process process;
  std::optional<Exit> exit;

  std::string who() const {
    if (!place.here) return fmt::format("rank {} (host {})", place.rank, place.host);
    return fmt::format("rank {} (pid {}, host {})", place.rank, process.pid, host_name());
  }
};

/// What a remote rank's ssh says of it: the shell there gives 128 + signal.
Exit seen_through_ssh(const Exit& exit) {
  return exit.signal == 0 && exit.code > 128 && exit.code < kSshFailed ? Exit{0, exit.code - 128} : exit;
}

/// How one start of all ranks ended.
struct Ending {
  std::optional<std::string> failure;  // one line: who and how
  int code = 0;
  int stopped_by = 0;  // the signal from outside, if there was one
};

/// One start of all ranks.
class Attempt {
 public:
  Attempt(const Job& job, const Signals& signals, Output& output, OutputQueue& queue, int restarts)
      : job_(job), signals_(signals), output_(output), queue_(queue), began_(clock_.now()) {
    token_ = job.token.value_or(random_token());
    for (const Place& place : job.plan.places) start(place, restarts);
  }

  Ending run() {
    while (std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.exit; })) wait_for_something();
    // What a rank started may still be about to finish; it has the same grace as everybody.
    const Nanoseconds until = clock_.now() + job_.grace;
    while (any_pipe_open() && clock_.now() < until) wait_for_something(until);
    for (Rank& rank : ranks_) close_pipes(rank);
    while (!queue_.empty() && clock_.now() < until) wait_for_something(until);
    return ending();
  }

 private:
  void start(const Place& place, int restarts) {
    std::vector<std::string> variables = rank_variables(job_, place, restarts);
    const bool threads_are_set = std::getenv("OMP_NUM_THREADS") != nullptr;
    Rank rank{place, {}, {}};
    if (place.here) {
      variables.push_back("PACELINE_JOB=" + token_);
      if (!threads_are_set) variables.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1, usable_cores() / place.local_size)));
      // A terminal belongs to the launcher: a rank that read it would be stopped. Anything else is for rank 0.
      const bool reads = place.rank == 0 && !::isatty(0);
      rank.process = spawn({job_.program, with_environment(variables), reads ? Command::Input::inherited : Command::Input::none}, here_);
    } else {
      if (!there_) there_.emplace();
      if (threads_are_set) variables.push_back(fmt::format("OMP_NUM_THREADS={}", std::getenv("OMP_NUM_THREADS")));
      const RemoteRank remote{job_.ssh,    place.host, std::filesystem::current_path(), variables, threads_are_set ? 0 : place.local_size,
                              job_.program};
      rank.process = spawn({ssh_command(remote), with_environment({}), Command::Input::pipe}, *there_);
      tell(rank, token_);
    }
    ranks_.push_back(std::move(rank));
  }

  static std::vector<std::string> with_environment(const std::vector<std::string>& variables) {
    std::vector<std::string> all = variables;
    const auto is_given = [&](std::string_view inherited) {
      const std::string_view name = inherited.substr(0, inherited.find('=') + 1);
      return std::ranges::any_of(variables, [&](const std::string& given) { return given.starts_with(name); });
    };
    for (char** inherited = environ; *inherited != nullptr; ++inherited)
      if (!is_given(*inherited)) all.emplace_back(*inherited);
    return all;
  }

  /// A line on the lifeline of a remote rank.
  static void tell(const Rank& rank, const std::string& line) {
    const std::string text = line + "\n";
    [[maybe_unused]] const ssize_t written = ::write(rank.process.in.get(), text.data(), text.size());  // if it is gone, so is the rank
  }

  void signal_all(int signal) {
    here_.signal(signal);
    for (const Rank& rank : ranks_)
      if (!rank.place.here && !rank.exit) tell(rank, signal_name(signal).substr(3));
  }

  void wait_for_something(std::optional<Nanoseconds> until = {}) {
    std::vector<pollfd> entries{{signals_.descriptor(), POLLIN, 0}, {queue_.empty() ? -1 : queue_.waiting_for(), POLLOUT, 0}};
    std::vector<std::pair<Rank*, Stream>> sources;
    if (!queue_.full())  // else the ranks wait, as they would for a slow terminal
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

  static Descriptor& pipe_of(Rank& rank, Stream stream) { return stream == Stream::out ? rank.process.out : rank.process.err; }

  bool any_pipe_open() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.process.out || rank.process.err; });
  }

  void read_pipe(Rank& rank, Stream stream) {
    char bytes[16 << 10];
    const ssize_t count = ::read(pipe_of(rank, stream).get(), bytes, sizeof(bytes));
    if (count > 0) return output_.receive(rank.place.rank, stream, {bytes, static_cast<std::size_t>(count)});
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    output_.end(rank.place.rank, stream);
    pipe_of(rank, stream).reset();
  }

  void close_pipes(Rank& rank) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      output_.end(rank.place.rank, stream);
      pipe_of(rank, stream).reset();
    }
  }

  void hear_signals() {
    while (const std::optional<int> signal = signals_.next()) {
      if (*signal == SIGCHLD) continue;
      stopped_by_ = *signal;
      if (*signal != SIGUSR1 && *signal != SIGUSR2 && ++signals_heard_ >= kPatience) signal_all(SIGKILL);
      else signal_all(*signal);
    }
    reap_ranks();
  }

  /// Of several that ended at once, one that was killed is the cause: the others noticed.
  void reap_ranks() {
    Rank* worst = nullptr;
    for (Rank& rank : ranks_) {
      if (rank.exit) continue;
      rank.exit = reap(rank.process.pid);
      if (!rank.exit) continue;
      if (!rank.place.here) rank.exit = seen_through_ssh(*rank.exit);
      if (failed(rank) && (worst == nullptr || (rank.exit->signal != 0 && worst->exit->signal == 0))) worst = &rank;
    }
    if (worst == nullptr || cause_ != nullptr) return;
    cause_ = worst;
    failed_after_ = clock_.now() - began_;
    next_step_ = clock_.now() + job_.grace;
  }

  /// Not so where it did what it was told: stopped, or died, by a signal that came from outside.
  bool failed(const Rank& rank) const {
    if (rank.exit->good()) return false;
    return stopped_by_ == 0 || (rank.exit->code != kStopped && rank.exit->shell_code() != 128 + stopped_by_);
  }

  void stop_harder() {
    if (!asked_to_end_) {
      asked_to_end_ = true;
      signal_all(SIGTERM);
      next_step_ = clock_.now() + job_.grace;
    } else {
      signal_all(SIGKILL);
      next_step_ = clock_.now() + 1s;  // for the other side of an ssh
      if (killed_ && there_) there_->signal(SIGKILL);
      killed_ = true;
    }
  }

  Ending ending() const {
    Ending ending;
    ending.stopped_by = stopped_by_;
    const bool all_stopped = std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.exit->good() || rank.exit->code == kStopped; });
    if (all_stopped) {
      const bool all_good = std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.exit->good(); });
      ending.code = all_good ? 0 : kStopped;
    } else if (cause_ == nullptr) {
      ending.code = 128 + stopped_by_;
      ending.failure = fmt::format("the ranks ended by {}, which was passed on to them", signal_name(stopped_by_));
    } else {
      const bool no_ssh = !cause_->place.here && cause_->exit->code == kSshFailed;
      ending.code = no_ssh ? 1 : cause_->exit->shell_code();
      ending.failure = fmt::format("{} {} after {:.0f} s{}", cause_->who(),
                                   no_ssh ? "could not be started or lost its connection (ssh)" : cause_->exit->text(),
                                   seconds(failed_after_), ranks_.size() > 1 ? "; the others were stopped" : "");
    }
    return ending;
  }

  const Job& job_;
  const Signals& signals_;
  Output& output_;
  OutputQueue& queue_;
  const SteadyClock clock_;
  const Nanoseconds began_;
  std::string token_;
  ProcessGroup here_;
  std::optional<ProcessGroup> there_;  // the ssh programs, which must not get the ranks' signals
  std::vector<Rank> ranks_;

  const Rank* cause_ = nullptr;  // who failed first
  Nanoseconds failed_after_{0};
  std::optional<Nanoseconds> next_step_;  // when to stop the others harder
  bool asked_to_end_ = false, killed_ = false;
  int stopped_by_ = 0, signals_heard_ = 0;
};

}  // namespace

std::vector<std::string> rank_variables(const Job& job, const Place& place, int restarts) {
  std::vector<std::string> variables = {
      fmt::format("RANK={}", place.rank),
      fmt::format("WORLD_SIZE={}", job.plan.size),
      fmt::format("LOCAL_RANK={}", place.local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", place.local_size),
      fmt::format("GROUP_RANK={}", place.node),
      fmt::format("NODE_RANK={}", place.node),
      fmt::format("MASTER_ADDR={}", job.address),
      fmt::format("MASTER_PORT={}", job.port),
      fmt::format("PACELINE_RESTARTS={}", restarts),
  };
  variables.insert(variables.end(), job.exported.begin(), job.exported.end());
  return variables;
}

int launch(const Job& given) {
  ensure(!given.plan.places.empty() && !given.program.empty(), "a job has ranks and a program");
  Job job = given;
  const Place& first = job.plan.places.front();
  if (job.address.empty()) job.address = meeting_address(job.plan);
  std::optional<ReservedPort> reserved;
  if (job.port == 0 && first.here) job.port = reserved.emplace().number();
  if (job.port == 0)
    job.port = 20000 + static_cast<int>(std::hash<std::string>()(random_token()) % 10000);  // there we cannot ask for a free one

  const Signals signals;
  OutputQueue queue;
  Output output(job.output,
                [&](Stream stream, std::string_view text) { queue.push(stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO, text); });
  for (int restarts = 0;; ++restarts) {
    const Ending ending = Attempt(job, signals, output, queue, restarts).run();
    if (!ending.failure) return ending.code;
    const bool again = restarts < job.max_restarts && ending.stopped_by == 0 && ending.code != kWrongInput;
    if (!again) {
      log::error("{}", *ending.failure);
      return ending.code;
    }
    log::warning("{}; start {} of {}", *ending.failure, restarts + 2, job.max_restarts + 1);
  }
}

}  // namespace paceline::launch

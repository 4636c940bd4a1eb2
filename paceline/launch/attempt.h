// One start of all ranks of a job: their processes, output and signals, until the last has ended. The consequences of the end of one of
// them differ between jobs without parameter servers (ranks_attempt.h) and with them (servers_attempt.h); those two derive from this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/launch/blame_lines.h"
#include "paceline/launch/ending.h"
#include "paceline/launch/job.h"
#include "paceline/launch/process.h"
#include "paceline/launch/role.h"
#include "paceline/launch/signals.h"

namespace paceline::launch {

struct Rank {
  Place place;
  Role role;
  int restarts = 0;          // since the launch, as the process is told
  int restarts_counted = 0;  // since it was last healthy for a while; compared with --max-restarts
  Nanoseconds began{0};
  Process process;
  std::optional<Exit> exit;
  Nanoseconds lived{0};       // once it has ended
  std::string given_up = {};  // why it was killed before it could end: "is stopped: no heartbeat for 4 s"

  std::string who() const;  ///< "rank 2 (pid 1234, host alpha)"
  std::string how() const;  ///< "exited with code 1"
  std::string end() const;  ///< which rank, how it ended and when
  int code() const;         ///< as a shell would give it; 1 if its host could not be reached or it was given up
};

class Attempt {
 public:
  Attempt(const Job& job, const Signals& signals, Output& output, OutputQueue& queue, int restarts);
  virtual ~Attempt() = default;
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  Ending run();

 protected:
  virtual void judge(const std::vector<Rank*>& ended) = 0;  ///< called with ranks that have just ended
  virtual Ending ending() const = 0;                        ///< called when all have ended

  const Job& job() const { return job_; }
  std::vector<Rank>& ranks() { return ranks_; }
  const std::vector<Rank>& ranks() const { return ranks_; }

  bool failed(const Rank& rank) const;                   ///< ended badly, and not because it was told to end
  bool told_to_end() const { return stopped_by_ != 0; }  ///< by a signal from outside
  bool is_stopping() const { return asked_to_end_; }     ///< what still runs has got SIGTERM from us
  void stop_after(Nanoseconds grace);                    ///< sends SIGTERM to what runs then, and SIGKILL after the job's grace
  void give_up(Rank& rank, std::string why);             ///< for a rank that cannot end by itself
  const BlameLines& blame_lines() const { return blame_lines_; }
  void start_again(Rank& rank);  ///< for a rank that has ended
  Ending ended_with(int code) const { return {{}, code, stopped_by_}; }
  Ending failed_with(const Rank& cause, std::string failure) const {
    return {std::move(failure), cause.code(), stopped_by_, cause.place.rank};
  }
  Ending ended_as_told() const;  ///< by the signal from outside

 private:
  void start(Rank& rank);
  void signal_all(int signal);
  void wait_for_something(std::optional<Nanoseconds> until = {});
  bool any_pipe_open() const;
  void read_pipe(Rank& rank, Stream stream);
  void pass_on(const Rank& rank, Stream stream, std::string_view bytes);
  void close_pipe(Rank& rank, Stream stream);
  void close_pipes(Rank& rank);
  void read_last_words(Rank& rank);
  void hear_signals();
  void reap_ranks();
  void stop_harder();

  const Job& job_;
  const Signals& signals_;
  Output& output_;
  OutputQueue& queue_;
  BlameLines blame_lines_;
  const SteadyClock clock_;
  ProcessGroup here_;
  std::optional<ProcessGroup> there_;  // the ssh processes, which must not get the ranks' signals
  std::vector<Rank> ranks_;

  std::optional<Nanoseconds> next_step_;  // when to stop what still runs, more forcefully each time
  bool asked_to_end_ = false, killed_ = false;
  int stopped_by_ = 0, signals_heard_ = 0, urged_ = 0;  // urged: signals that ask to end, not to write a checkpoint
};

}  // namespace paceline::launch

#include "paceline/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "paceline/base/entropy.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/base/run_program.h"
#include "paceline/launch/addresses.h"
#include "paceline/launch/ranks_attempt.h"
#include "paceline/launch/servers_attempt.h"

namespace paceline::launch {
namespace {

bool takes_a_line(int descriptor) {
  pollfd entry{descriptor, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool was_healthy(const Ending& ending, Nanoseconds healthy_after) {
  const auto culprit = std::ranges::find(ending.ranks, ending.culprit.value_or(-1), &RankEnding::rank);
  return culprit != ending.ranks.end() && culprit->lived >= healthy_after;
}

}  // namespace

Ending launch(const Job& given) {
  ensure(!given.placement.places.empty() && !given.program.empty(), "a job has ranks and a program");
  ensure(given.servers == 0 ||
             (given.servers < given.placement.size && given.placement.places.size() == static_cast<std::size_t>(given.placement.size)),
         "a job with servers has workers too, and one launcher");
  Job job = given;
  job.output.servers = job.servers;
  if (job.token.empty()) job.token = hex(random_bytes(kKeyBytes));  // the same for all restarts, which find the run by it
  const JobAddresses addresses(job);

  const Signals signals;
  OutputQueue queue;
  Output output(job.output, [&](Stream stream, std::string_view text) {
    queue.push(stream == Stream::out && !job.output.all_to_stderr ? STDOUT_FILENO : STDERR_FILENO, text);
  });
  const log::Screen screen([&](const std::function<void()>& write_line) {
    output.make_room([&] {
      queue.pump_what_goes();
      write_line();
    });
  });
  const auto attempt = [&](int restarts) {
    if (job.servers > 0) return ServersAttempt(job, signals, output, queue, restarts).run();
    return RanksAttempt(job, signals, output, queue, restarts).run();
  };
  for (int restarts = 0, counted = 0;; ++restarts) {
    Ending ending = attempt(restarts);
    if (!ending.failure) return ending;
    if (was_healthy(ending, job.healthy_after)) counted = 0;
    const bool again = job.servers == 0 && counted < job.max_restarts && ending.stopped_by == 0 && ending.code != kWrongInput;
    if (!again) {
      // We handle signals until the end: otherwise a line that is never read would block us.
      if (queue.empty() || takes_a_line(STDERR_FILENO)) log::error("{}", *ending.failure);
      return ending;
    }
    log::warning("{}; restart {} of {}", *ending.failure, ++counted, job.max_restarts);
  }
}

}  // namespace paceline::launch

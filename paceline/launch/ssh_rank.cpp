#include "paceline/launch/ssh_rank.h"

#include <fmt/format.h>

namespace paceline::launch {

std::string shell_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> ssh_command(const RemoteRank& rank) {
  std::string variables, program;
  for (const std::string& variable : rank.environment) {
    const auto equals = variable.find('=');
    variables += " " + variable.substr(0, equals + 1) + shell_quote(variable.substr(equals + 1));
  }
  for (const std::string& word : rank.program) program += " " + shell_quote(word);
  const std::string threads =
      rank.local_size == 0 ? "" : fmt::format("t=$(($(nproc) / {})); export OMP_NUM_THREADS=$((t > 0 ? t : 1)); ", rank.local_size);
  // setsid makes the rank the leader of its own group, which is what the guard signals. The guard keeps none of the outputs open, or ssh
  // would wait for it.
  const std::string script = fmt::format(
      "cd {} || exit 2; export{}; read -r PACELINE_JOB || exit 1; export PACELINE_JOB; {}exec 3<&0; "
      "setsid{} </dev/null 3<&- & rank=$!; "
      "(while read -r name; do kill -s \"$name\" -- -$rank; done; kill -s KILL -- -$rank) <&3 >/dev/null 2>&1 & guard=$!; "
      "exec 3<&-; wait $rank; code=$?; kill $guard; kill -s KILL -- -$rank 2>/dev/null; exit $code",
      shell_quote(rank.folder), variables, threads, program);
  std::vector<std::string> words = rank.ssh;
  for (const char* word : {"-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}) words.emplace_back(word);
  words.push_back(rank.host);
  words.push_back("exec sh -c " + shell_quote(script));  // whichever shell the user has there
  return words;
}

}  // namespace paceline::launch

#include "paceline/schedule/method.h"

#include <algorithm>
#include <string>

namespace paceline::schedule {
namespace {

constexpr std::int64_t kMostChunks = 1 << 20;

[[noreturn]] void refuse(const Problem& problem, const std::string& reason) {
  throw ConfigError(std::string(name_of(problem.collective)) + ": " + reason);
}

void require_between(std::int64_t value, std::int64_t least, std::int64_t most, const Problem& problem, const char* name) {
  if (least <= value && value <= most) return;
  refuse(problem,
         std::string(name) + " must be " + std::to_string(least) + " to " + std::to_string(most) + ", not " + std::to_string(value));
}

Problem checked(Problem problem) {
  if (problem.size < 1) refuse(problem, "needs at least one rank, not " + std::to_string(problem.size));
  if (problem.count < 0) refuse(problem, "a buffer cannot have " + std::to_string(problem.count) + " elements");
  if (problem.per_host < 1) refuse(problem, "a host has at least one rank, not " + std::to_string(problem.per_host));
  require_between(problem.root, 0, problem.size - 1, problem, "root");
  require_between(problem.chunks, 1, kMostChunks, problem, "chunks");
  if (problem.collective == Collective::all_to_all && problem.count % problem.size != 0) {
    refuse(problem, std::to_string(problem.count) + " elements cannot be cut into " + std::to_string(problem.size) + " equal parts");
  }
  if (problem.collective == Collective::barrier) problem.count = 0;
  problem.chunks = std::min(problem.chunks, std::max<std::int64_t>(problem.count, 1));
  return problem;
}

const Method& method_for(std::span<const Method> methods, Collective collective) {
  const auto found = std::ranges::find(methods, collective, &Method::collective);
  if (found == methods.end()) throw ConfigError("this algorithm does not offer " + std::string(name_of(collective)));
  return *found;
}

}  // namespace

Steps steps_of(std::span<const Method> methods, const Problem& problem) {
  const Problem sound = checked(problem);
  require_between(sound.rank, 0, sound.size - 1, sound, "rank");
  StepList list(sound.collective);
  method_for(methods, sound.collective).build(list, sound);
  return std::move(list).take();
}

Counts counts_of(std::span<const Method> methods, const Problem& problem) {
  const Problem sound = checked(problem);
  const Method& method = method_for(methods, sound.collective);
  const bool idle = sound.size == 1 || (sound.count == 0 && sound.collective != Collective::barrier);
  return idle ? Counts{} : method.formula(sound);
}

}  // namespace paceline::schedule

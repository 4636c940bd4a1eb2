// Ranks as threads, for tests.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "paceline/comm/engine.h"

namespace paceline::comm {

/// Plays `size` ranks. What a rank throws is its text in the result; a rank that throws leaves, so that the others learn of it.
inline std::vector<std::string> play(int size, const CommConfig& config, const std::function<void(Communicator&)>& rank) {
  auto group = local_group(size, config);
  std::vector<std::string> problems(group.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < group.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        rank(*group[i]);
      } catch (const std::exception& problem) {
        problems[i] = problem.what();
      }
      if (!problems[i].empty()) group[i].reset();
    });
  for (std::thread& thread : threads) thread.join();
  return problems;
}

}  // namespace paceline::comm

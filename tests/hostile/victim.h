// What the victims share: a job that goes on until its standard input ends, and says how far it is whenever a line comes there.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

namespace paceline::hostile {

inline void say(const std::string& json) {
  fmt::print("{}\n", json);
  std::fflush(stdout);
}

/// Runs `round` in a thread until standard input ends; returns the number of rounds. Whatever a round throws ends the program.
inline std::int64_t go_on(const std::function<void(std::int64_t round)>& round) {
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> rounds = 0;
  std::thread job([&] {
    for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      round(rounds);
      ++rounds;
    }
  });
  say("{\"ready\": true}");
  for (std::string line; std::getline(std::cin, line);) say(fmt::format("{{\"rounds\": {}}}", rounds.load()));
  stop = true;
  job.join();
  return rounds;
}

}  // namespace paceline::hostile

#if defined(__SANITIZE_THREAD__)  // gRPC was not built for it, and would seem to be full of races
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

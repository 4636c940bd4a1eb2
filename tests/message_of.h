// What somebody says who refuses.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace paceline {

/// The message that `attempt` throws as an `Expected`; a failure if it throws nothing or something else.
template <class Expected, class Attempt>
std::string message_of(Attempt&& attempt) {
  try {
    attempt();
  } catch (const Expected& problem) {
    EXPECT_EQ(std::string(problem.what()).find('\n'), std::string::npos) << "a message is one line";
    return problem.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another error: " << other.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace paceline

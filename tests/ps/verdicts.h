// Verdicts as tests write and read them.
#pragma once

#include <ostream>

#include "paceline/ps/consistency.h"

namespace paceline::ps {

inline constexpr Verdict kDropped{Verdict::Fate::dropped, 0}, kNothing{Verdict::Fate::applied, 0};
constexpr Verdict gathered(int count) { return {Verdict::Fate::gathered, count}; }
constexpr Verdict applied(int count) { return {Verdict::Fate::applied, count}; }

inline void PrintTo(const Verdict& verdict, std::ostream* out) {
  static constexpr const char* kFates[] = {"dropped", "gathered", "applied"};
  *out << kFates[static_cast<int>(verdict.fate)] << '(' << verdict.gathered << ')';
}

}  // namespace paceline::ps

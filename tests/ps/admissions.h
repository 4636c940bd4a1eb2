// Admissions as tests write and read them.
#pragma once

#include <ostream>

#include "paceline/ps/consistency.h"

namespace paceline::ps {

inline constexpr Admission kDropped{Admission::Fate::dropped, 0}, kNothing{Admission::Fate::applied, 0};
constexpr Admission gathered(int count) { return {Admission::Fate::gathered, count}; }
constexpr Admission applied(int count) { return {Admission::Fate::applied, count}; }

inline void PrintTo(const Admission& admission, std::ostream* out) {
  static constexpr const char* kFates[] = {"dropped", "gathered", "applied"};
  *out << kFates[static_cast<int>(admission.fate)] << '(' << admission.gathered << ')';
}

}  // namespace paceline::ps

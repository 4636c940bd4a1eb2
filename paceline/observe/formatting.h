// Numbers as people read them, and text that is measured in columns rather than in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paceline/base/text.h"

namespace paceline::observe {

using paceline::plural, paceline::show_count;  // defined in base, for rooms that do not depend on this one

std::string show_large(double number);                 ///< 11.2 M, 940 (three digits and a letter)
std::string show_rate(double per_second);              ///< 4,065 or 4.07 (at least three digits); - if there is none
std::string show_bytes(std::int64_t bytes);            ///< 1.2 GB, in powers of 1000
std::string show_duration(double seconds);             ///< 450 ms, 12.3 s, 1m 23s, 2h 03m, 3d 4h; - if there is none
std::string show_moment(double seconds);               ///< 420 µs, 2.34 ms, 12.3 s: three digits, for short durations
std::string show_wait(double seconds);                 ///< 42s, 1m 23s, …: whole seconds, for running timers
std::string show_loss(double loss);                    ///< 0.4321; large ones with four digits
std::string show_percent(double share, int decimals);  ///< 85.23%

/// Columns on a terminal: code points of UTF-8, each counted as one.
int columns(std::string_view text);

/// The text in exactly this many columns: padded with spaces, or truncated.
enum class Align { left, right };
std::string fit(std::string_view text, int width, Align align = Align::left);

/// At most this many columns. Truncated in the middle, because both ends of a path say more than its middle.
std::string shorten(std::string_view text, int width, bool unicode = true);

std::string repeat(std::string_view piece, int times);

}  // namespace paceline::observe

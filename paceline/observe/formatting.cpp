#include "paceline/observe/formatting.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paceline::observe {
namespace {

/// Three significant digits: 1.23, 12.3, 123.
std::string three_digits(double number) {
  const double size = std::abs(number);
  return fmt::format("{:.{}f}", number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

constexpr const char* kNone = "-";  // ASCII, because this code does not know what the terminal supports

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

/// The byte at which character number `index` begins.
std::size_t byte_of(std::string_view text, int index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if (starts_character(text[at]) && index-- == 0) break;
  return at;
}

}  // namespace

std::string show_large(double number) {
  static constexpr const char* kLetters[] = {"", " k", " M", " G", " T", " P"};
  std::size_t power = 0;
  for (; std::abs(number) >= 999.5 && power + 1 < std::size(kLetters); ++power) number /= 1000;
  if (power == 0) return fmt::format("{:.4g}", number);
  return three_digits(number) + kLetters[power];
}

std::string show_rate(double per_second) {
  if (!std::isfinite(per_second)) return kNone;
  return per_second < 99.95 ? three_digits(per_second) : show_count(std::llround(per_second));
}

std::string show_bytes(std::int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  return show_large(static_cast<double>(bytes)) + "B";
}

std::string show_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return kNone;
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const std::int64_t whole = std::llround(seconds), minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (minutes < 60) return fmt::format("{}m {:02}s", minutes, whole % 60);
  if (hours < 24) return fmt::format("{}h {:02}m", hours, minutes % 60);
  return fmt::format("{}d {}h", days, hours % 24);
}

std::string show_moment(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const auto [factor, unit] = seconds < 1e-3 ? std::pair(1e6, "µs") : seconds < 1 ? std::pair(1e3, "ms") : std::pair(1.0, "s");
  const double value = seconds * factor;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
}

std::string show_wait(double seconds) {
  const double whole = std::round(seconds);
  return whole >= 0 && whole < 60 ? fmt::format("{:.0f}s", whole) : show_duration(whole);
}

std::string show_loss(double loss) { return std::abs(loss) < 100 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss); }

std::string show_percent(double share, int decimals) { return fmt::format("{:.{}f}%", 100 * share, decimals); }

int columns(std::string_view text) { return static_cast<int>(std::ranges::count_if(text, starts_character)); }

std::string fit(std::string_view text, int width, Align align) {
  const int missing = width - columns(text);
  if (missing < 0) return std::string(text.substr(0, byte_of(text, width)));
  const std::string space(static_cast<std::size_t>(missing), ' ');
  return align == Align::left ? std::string(text) + space : space + std::string(text);
}

std::string shorten(std::string_view text, int width, bool unicode) {
  const int length = columns(text);
  if (length <= width) return std::string(text);
  const std::string_view gap = unicode ? "…" : "...";
  const int kept = std::max(0, width - columns(gap)), head = kept / 2, tail = kept - head;
  return fmt::format("{}{}{}", text.substr(0, byte_of(text, head)), gap, text.substr(byte_of(text, length - tail)));
}

std::string repeat(std::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

}  // namespace paceline::observe

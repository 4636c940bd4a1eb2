// The terminal or file that text for people goes to, and what it can show.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::observe {

enum class Ink { plain, bold, dim, accent, good, warn };

/// The ink's escape sequence around the text; the bare text if `on` is false.
std::string paint(std::string_view text, Ink ink, bool on);

struct Terminal {
  std::ostream* out = nullptr;
  bool live = false;                               // a line can be redrawn
  bool color = false;                              // escape sequences for colours are understood
  bool unicode = true;                             // boxes and bars beyond ASCII
  std::function<int()> width = [] { return 80; };  // asked at every drawing, because windows change

  std::string ink(std::string_view text, Ink kind) const { return paint(text, kind, color); }

  /// Standard error. Live only if it is a terminal and TERM is not "dumb"; no colours with NO_COLOR; ASCII if the locale requires
  /// it.
  static Terminal standard_error();
};

/// Rows of label and value in a box with a title on its border, at least `least` columns wide and never wider than the terminal.
struct Row {
  std::string label, value;
};
std::string box(const Terminal& terminal, std::string_view title, Ink ink, const std::vector<Row>& rows, int least = 76);

}  // namespace paceline::observe

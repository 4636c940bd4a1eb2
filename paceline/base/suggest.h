// "Did you mean": the known word that is nearest to an unknown one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace paceline {

/// Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, or an empty view if none is near enough to be a typing error.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

/// "unknown WHAT 'word'; did you mean 'x'?" or "…; known: a, b, c".
std::string unknown_message(std::string_view what, std::string_view word, std::span<const std::string_view> candidates);

}  // namespace paceline

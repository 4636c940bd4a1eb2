// The kinds of characters that GPT-2's tokenizer distinguishes.
#pragma once

#include <cstddef>
#include <string_view>

namespace paceline::data {

enum class CharacterKind { letter, number, space, other };

/// Unicode's general categories L* and N*, and the property White_Space.
CharacterKind kind_of(char32_t character);

struct Character {
  CharacterKind kind = CharacterKind::other;
  std::size_t bytes = 1;
};

/// The UTF-8 character at the beginning of a non-empty text. A byte that does not begin one is a character by itself, of kind other.
Character first_character(std::string_view text);

}  // namespace paceline::data

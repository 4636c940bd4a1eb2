#include "paceline/data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "paceline/data/unicode_kinds.h"
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// GPT-2's characters for bytes, written down the way of its encoder.py.
std::string character_of(int byte) {
  int number = byte;
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff); };
  if (!printable(byte)) {
    number = 256;
    for (int b = 0; b < byte; ++b) number += printable(b) ? 0 : 1;
  }
  if (number < 128) return {static_cast<char>(number)};
  return {static_cast<char>(0xc0 | number >> 6), static_cast<char>(0x80 | (number & 63))};
}

/// A vocabulary of all bytes (byte b is token b), then one token for each merge, then the end of text.
struct SmallVocabulary {
  explicit SmallVocabulary(const std::vector<std::pair<std::string, std::string>>& pairs) {
    for (int byte = 0; byte < 256; ++byte) vocabulary[character_of(byte)] = byte;
    for (const auto& [left, right] : pairs) {
      merges += left + " " + right + "\n";
      vocabulary.emplace(left + right, vocabulary.size());
    }
    vocabulary["<|endoftext|>"] = vocabulary.size();
    write();
  }
  void write() const {
    const std::string text = vocabulary.dump();
    folder.write("vocab.json", Bytes(text.begin(), text.end()));
    folder.write("merges.txt", Bytes(merges.begin(), merges.end()));
  }
  std::unique_ptr<const Tokenizer> make() const { return make_gpt2_tokenizer(folder / "vocab.json", folder / "merges.txt"); }

  Folder folder;
  nlohmann::json vocabulary = nlohmann::json::object();
  std::string merges = "#version: 0.2\n";
};

std::vector<std::uint32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::uint32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

std::string decoded_text(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& tokens) {
  return tokenizer.decode(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
}

TEST(Gpt2Tokenizer, MergesTheFirstPairOfTheListAndTheLeftmostOfEquals) {
  // 256: "ab", 257: "bc", 258: "abc", 259: "aa"
  const SmallVocabulary files({{"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "a"}});
  const auto tokenizer = files.make();
  EXPECT_EQ(tokenizer->vocabulary(), 261);
  EXPECT_EQ(tokenizer->end_of_text(), 260u);
  EXPECT_THAT(encoded(*tokenizer, "abc"), ElementsAre(258));  // "ab" stands before "bc"
  EXPECT_THAT(encoded(*tokenizer, "xbcab"), ElementsAre('x', 257, 256));
  EXPECT_THAT(encoded(*tokenizer, "aaa"), ElementsAre(259, 'a'));       // not 'a', 259
  EXPECT_THAT(encoded(*tokenizer, "aaab"), ElementsAre(259, 256));      // "ab" first, then "aa"
  EXPECT_THAT(encoded(*tokenizer, "a b"), ElementsAre('a', ' ', 'b'));  // no pair reaches from word to word
  EXPECT_THAT(encoded(*tokenizer, "<|endoftext|>").size(), 13);         // in a text it is text
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>{258, 260, 'x', 99999}), "abcx");
}

TEST(Gpt2Tokenizer, SplitsWordsByGpt2sPattern) {
  // Every pair of these merges, so that a token shows whether its characters were in one word. "Ġ" is the space, "Ċ" the line's end.
  const SmallVocabulary files({{"Ġ", "a"},
                               {"a", "b"},
                               {"a", "1"},
                               {"'", "s"},
                               {"Ġ", "'"},
                               {"Ġ", "Ġ"},
                               {"Ċ", "Ċ"},
                               {"Ġ", "1"},
                               {"!", "a"},
                               {"'", "S"},
                               {"Ġ", "!"},
                               {"Ċ", "Ġ"},
                               {"Ċ", "a"}});
  const auto tokenizer = files.make();
  const auto token = [&](const std::string& name) { return files.vocabulary.at(name).get<std::uint32_t>(); };
  const std::uint32_t space = ' ', line = '\n';
  EXPECT_THAT(encoded(*tokenizer, "a a"), ElementsAre('a', token("Ġa")));
  EXPECT_THAT(encoded(*tokenizer, "a1"), ElementsAre('a', '1'));  // letters and numbers are words of their own
  EXPECT_THAT(encoded(*tokenizer, " 1!a !"), ElementsAre(token("Ġ1"), '!', 'a', token("Ġ!")));
  EXPECT_THAT(encoded(*tokenizer, "a's"), ElementsAre('a', token("'s")));
  EXPECT_THAT(encoded(*tokenizer, "a'S"), ElementsAre('a', '\'', 'S'));
  EXPECT_THAT(encoded(*tokenizer, " 's"), ElementsAre(token("Ġ'"), 's'));
  EXPECT_THAT(encoded(*tokenizer, "  a"), ElementsAre(space, token("Ġa")));
  EXPECT_THAT(encoded(*tokenizer, "   a"), ElementsAre(token("ĠĠ"), token("Ġa")));
  EXPECT_THAT(encoded(*tokenizer, "a  "), ElementsAre('a', token("ĠĠ")));
  EXPECT_THAT(encoded(*tokenizer, "a\n\na"), ElementsAre('a', line, line, 'a'));
  EXPECT_THAT(encoded(*tokenizer, "a\n\n"), ElementsAre('a', token("ĊĊ")));
  EXPECT_THAT(encoded(*tokenizer, "\n a"), ElementsAre(line, token("Ġa")));
  EXPECT_THAT(encoded(*tokenizer, "\n "), ElementsAre(token("ĊĠ")));
}

TEST(Gpt2Tokenizer, AnyBytesComeBackAsTheyWere) {
  const SmallVocabulary files({{"a", "b"}, {"Ã", "¤"}, {"Ġ", "Ã"}});
  const auto tokenizer = files.make();
  std::string every;
  for (int i = 0; i < 2000; ++i) every += static_cast<char>(i * i + i / 7);
  for (const std::string& text :
       {every, std::string("ab ä\xff\xc3 日本 \xf0\x9f\x98\x80 12\xe2\x85\xab"), std::string(), std::string("\0ab", 3)})
    EXPECT_EQ(decoded_text(*tokenizer, encoded(*tokenizer, text)), text);
}

TEST(Gpt2Tokenizer, ALongWordTakesNoQuadraticTime) {
  const SmallVocabulary files({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}});
  const auto tokens = encoded(*files.make(), std::string(1'000'000, 'a'));  // by scanning for each merge it would take hours
  EXPECT_EQ(tokens.size(), 125'000u);
}

TEST(Gpt2Tokenizer, FilesThatDoNotFitAreRefused) {
  SmallVocabulary files({{"a", "b"}, {"ab", "a"}});
  const auto refused = [&] {
    files.write();
    return message_of<DataError>([&] { files.make(); });
  };
  const auto good = files.vocabulary;
  files.vocabulary.erase("Ġ");
  EXPECT_THAT(refused(), AllOf(HasSubstr("vocab.json"), HasSubstr("byte 32")));
  files.vocabulary = good, files.vocabulary["zz"] = 65;
  EXPECT_THAT(refused(), AllOf(HasSubstr("'zz'"), HasSubstr("'A'"), HasSubstr("65")));
  files.vocabulary = good, files.vocabulary["zz"] = "five";
  EXPECT_THAT(refused(), AllOf(HasSubstr("'zz'"), HasSubstr("five")));
  files.vocabulary = nlohmann::json::array();
  EXPECT_THAT(refused(), HasSubstr("vocab.json"));
  files.vocabulary = good, files.merges = "#version: 0.2\na b\nb c\n";
  EXPECT_THAT(refused(), AllOf(HasSubstr("merges.txt"), HasSubstr("line 3"), HasSubstr("'b c'")));
  files.merges = "ab\n";
  EXPECT_THAT(refused(), HasSubstr("line 1"));
}

TEST(CharacterTokenizer, NamesACharacterThatItDoesNotHave) {
  const auto tokenizer = make_character_tokenizer("\nab");
  EXPECT_THAT(encoded(*tokenizer, "ba\n"), ElementsAre(2, 1, 0));
  EXPECT_EQ(decoded_text(*tokenizer, {2, 1, 0}), "ba\n");
  EXPECT_THAT(message_of<ConfigError>([&] { encoded(*tokenizer, "abc"); }), AllOf(HasSubstr("byte 2"), HasSubstr("'c'")));
}

TEST(UnicodeKinds, KnowsLettersNumbersAndSpaces) {
  using enum CharacterKind;
  const std::vector<std::pair<char32_t, CharacterKind>> expected = {
      {'A', letter},  {'z', letter},   {'_', other},    {'0', number},      {U'ä', letter},  {U'×', other},
      {U'²', number}, {U'日', letter}, {U'ⅻ', number},  {U'\u0301', other}, {'\t', space},   {0x1c, other},
      {0x85, space},  {0xa0, space},   {0x2003, space}, {0x200b, other},    {0x3000, space}, {0x10ffff, other}};
  for (const auto& [character, kind] : expected) EXPECT_EQ(kind_of(character), kind) << std::hex << static_cast<unsigned>(character);
  const auto is = [](std::string_view text, CharacterKind kind, std::size_t bytes) {
    const Character found = first_character(text);
    return found.kind == kind && found.bytes == bytes;
  };
  EXPECT_TRUE(is("é!", letter, 2));
  EXPECT_TRUE(is("日", letter, 3));
  EXPECT_TRUE(is("\xf0\x90\x90\x80", letter, 4));  // Deseret
  EXPECT_TRUE(is("\xc3", other, 1));               // cut short
  EXPECT_TRUE(is("\xc1\x81", other, 1));           // 'A', written too long
  EXPECT_TRUE(is("\xed\xa0\x80", other, 1));       // a surrogate
}

}  // namespace
}  // namespace paceline::data

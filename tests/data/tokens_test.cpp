#include <cstring>
#include <set>

#include "paceline/data/token_file.h"
#include "paceline/data/tokenizer.h"
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Token>
Bytes raw(const std::vector<Token>& tokens) {
  Bytes bytes(tokens.size() * sizeof(Token));
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

/// As llm.c's data_common.py writes it: 256 int32, of which three say something, then the tokens.
template <class Token>
Bytes with_header(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<Token>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = count;
  Bytes bytes = raw(header), rest = raw(tokens);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

template <class Token = std::uint16_t>
std::vector<Token> counting(Token first, int count) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(first + i));
  return tokens;
}

DataConfig tokens_at(const std::string& root, std::int64_t context, std::int64_t vocabulary = 0) {
  DataConfig config = config_of("tokens", root);
  config.context = context, config.vocabulary = vocabulary;
  return config;
}

std::vector<std::int64_t> firsts(const Dataset& set) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < set.size(); ++i) tokens.push_back(sample(set, i).tokens[0]);
  return tokens;
}

TEST(Tokens, WindowsFollowEachOtherAndTargetsAreOneAhead) {
  Folder folder;
  folder.write("a.bin", raw(counting<std::uint16_t>(0, 100)));
  const DataConfig config = tokens_at((folder / "a.bin").string(), 8, 100);
  const auto train = make_dataset(config, Split::train, 0), test = make_dataset(config, Split::test, 0);
  ASSERT_EQ(train->size(), (90 - 1) / 8);
  ASSERT_EQ(test->size(), (10 - 1) / 8);
  EXPECT_TRUE(train->info().tokens);
  EXPECT_EQ(train->info().classes, 100);
  EXPECT_EQ(train->info().target, (std::vector<std::int64_t>{8}));
  for (std::int64_t i = 0; i < train->size(); ++i) {
    const Batch batch = sample(*train, i);
    for (std::int64_t k = 0; k < 8; ++k) {
      EXPECT_EQ(batch.tokens[static_cast<std::size_t>(k)], 8 * i + k);
      EXPECT_EQ(batch.targets[static_cast<std::size_t>(k)], 8 * i + k + 1);
    }
  }
  EXPECT_EQ(sample(*test, 0).tokens[0], 90);
}

TEST(Tokens, ReadsTheHeadersOfLlmCAndTokensOf32Bits) {
  Folder folder;
  const std::vector<std::uint32_t> wide = {70000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  folder.write("gpt2.bin", with_header(20240520, 1, 12, counting<std::uint16_t>(50200, 12)));
  folder.write("wide.bin", with_header(20240520, 1, 12, std::vector<std::uint32_t>(wide.begin(), wide.end())));
  folder.write("llama.bin", with_header(20240801, 7, 12, wide));
  folder.write("bare.bin", raw(wide));
  const auto gpt2 = make_dataset(tokens_at((folder / "gpt2.bin").string(), 4), Split::train, 0);
  EXPECT_EQ(gpt2->info().classes, 50257);
  EXPECT_EQ(firsts(*gpt2), (std::vector<std::int64_t>{50200, 50204}));
  const auto llama = make_dataset(tokens_at((folder / "llama.bin").string(), 4), Split::train, 0);
  EXPECT_EQ(llama->info().classes, 128256);
  EXPECT_EQ(firsts(*llama), (std::vector<std::int64_t>{70000, 4}));
  EXPECT_EQ(firsts(*make_dataset(tokens_at((folder / "wide.bin").string(), 4, 70001), Split::train, 0)),
            (std::vector<std::int64_t>{70000, 4}));
  DataConfig bare = tokens_at((folder / "bare.bin").string(), 4, 70001);
  bare.token_bits = 32;
  EXPECT_EQ(firsts(*make_dataset(bare, Split::train, 0)), (std::vector<std::int64_t>{70000, 4}));
}

TEST(Tokens, ShardsComeFromFoldersPatternsAndLists) {
  Folder folder;
  folder.write("s/x_train_0.bin", raw(counting<std::uint16_t>(0, 9)));
  folder.write("s/x_train_1.bin", raw(counting<std::uint16_t>(100, 10)));  // one token that fills no window
  folder.write("s/x_val_0.bin", raw(counting<std::uint16_t>(200, 9)));
  folder.write("s/readme.txt", {});
  for (const std::string& root : {(folder / "s").string(), (folder / "s/x_*.bin").string(),
                                  (folder / "s/x_train_?.bin").string() + "," + (folder / "s/x_val_0.bin").string()}) {
    const DataConfig config = tokens_at(root, 4, 300);
    EXPECT_EQ(firsts(*make_dataset(config, Split::train, 0)), (std::vector<std::int64_t>{0, 4, 100, 104})) << root;
    EXPECT_EQ(firsts(*make_dataset(config, Split::test, 0)), (std::vector<std::int64_t>{200, 204})) << root;
  }
  // Where nothing is called a test, every file gives its last tenth.
  const DataConfig halves = tokens_at((folder / "s/x_train_*.bin").string(), 1, 300);
  EXPECT_EQ(firsts(*make_dataset(halves, Split::train, 0)),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 100, 101, 102, 103, 104, 105, 106, 107}));
}

TEST(Tokens, AugmentedWindowsStartLaterButStayInTheirFile) {
  Folder folder;
  folder.write("train_a.bin", raw(counting<std::uint16_t>(0, 40)));
  folder.write("train_b.bin", raw(counting<std::uint16_t>(1000, 40)));
  folder.write("test.bin", raw(counting<std::uint16_t>(0, 20)));
  const auto set = make_dataset(tokens_at(folder.path().string(), 16, 2000), Split::train, 0);
  ASSERT_EQ(set->size(), 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t first = i / 2 * 1000 + i % 2 * 16, room = std::min<std::int64_t>(16, 40 - 17 - i % 2 * 16 + 1);
    std::set<std::int64_t> starts;
    for (std::uint64_t epoch = 0; epoch < 300; ++epoch) {
      RandomStream random(1, Purpose::augment, static_cast<std::uint64_t>(i), epoch);
      const Batch batch = sample(*set, i, &random);
      starts.insert(batch.tokens[0] - first);
      ASSERT_EQ(batch.targets.back(), batch.tokens[0] + 16);
    }
    EXPECT_EQ(*starts.begin(), 0);
    EXPECT_EQ(static_cast<std::int64_t>(starts.size()), room);
    EXPECT_EQ(*starts.rbegin(), room - 1);
  }
}

TEST(Tokens, ATokenBeyondTheVocabularyIsNamedWithFileAndPosition) {
  Folder folder;
  auto tokens = counting<std::uint16_t>(0, 40000);
  tokens[20123] = 50257;
  folder.write("a.bin", raw(tokens));
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(tokens_at((folder / "a.bin").string(), 8, 50257), Split::train, 0); }),
              AllOf(HasSubstr("a.bin"), HasSubstr("token 50257"), HasSubstr("position 20123"), HasSubstr("data.vocabulary")));
  EXPECT_EQ(make_dataset(tokens_at((folder / "a.bin").string(), 8, 50258), Split::train, 0)->size(), (36000 - 1) / 8);
  // A window is checked when it is read as well: larger sets are not looked through beforehand.
  std::vector<std::int64_t> out(8);
  const TokenFile file(folder / "a.bin", 16);
  EXPECT_THAT(message_of<DataError>([&] { file.read(20120, out, 50257); }), HasSubstr("position 20123"));
  file.read(20124, out, 50257);
  EXPECT_EQ(out[0], 20124);
}

TEST(Tokens, AFileThatCannotBeIsRefused) {
  Folder folder;
  const auto refused = [&](const Bytes& bytes, int bits = 16) {
    folder.write("a.bin", bytes);
    DataConfig config = tokens_at((folder / "a.bin").string(), 2, 60000);
    config.token_bits = bits;
    return message_of<Error>([&] { make_dataset(config, Split::train, 0); });
  };
  EXPECT_THAT(refused(Bytes(101, 0)), AllOf(HasSubstr("a.bin"), HasSubstr("101 bytes"), HasSubstr("data.token_bits")));
  EXPECT_THAT(refused(Bytes(102, 0), 32), HasSubstr("102 bytes"));
  EXPECT_THAT(refused(Bytes(102, 0), 24), HasSubstr("data.token_bits=24"));
  EXPECT_THAT(refused({}), HasSubstr("data.context=2"));
  const auto tokens = counting<std::uint16_t>(0, 50);
  EXPECT_THAT(refused(with_header(20240520, 1, 51, tokens)), AllOf(HasSubstr("51 tokens"), HasSubstr("100 bytes"), HasSubstr("102")));
  EXPECT_THAT(refused(with_header(20240520, 1, -50, tokens)), HasSubstr("-50"));
  EXPECT_THAT(refused(with_header(20240520, 2, 50, tokens)), AllOf(HasSubstr("version 2"), HasSubstr("expected 1")));
}

TEST(Tokens, APlaceWithoutTokensIsRefused) {
  Folder folder;
  folder.write("sub/a.txt", {1});
  folder.write("a.bin", raw(counting<std::uint16_t>(0, 50)));
  const auto refused = [&](const std::string& root) {
    return message_of<Error>([&] { make_dataset(tokens_at(root, 8), Split::train, 0); });
  };
  EXPECT_THAT(refused((folder / "sub").string()), AllOf(HasSubstr("sub"), HasSubstr("paceline tokenize")));
  EXPECT_THAT(refused((folder / "*.tok").string()), HasSubstr("*.tok"));
  EXPECT_THAT(refused((folder / "no.bin").string()), HasSubstr("no.bin"));
  EXPECT_THAT(refused((folder / "a.bin").string()), HasSubstr("data.vocabulary"));
}

TEST(Tokens, AFoldersDescriptionGivesVocabularyAndTokenizer) {
  Folder folder;
  write_token_file(folder / "train.bin", counting<std::uint32_t>(97, 26), 16);
  write_token_file(folder / "val.bin", counting<std::uint32_t>(97, 26), 32);
  EXPECT_EQ(make_dataset(tokens_at(folder.path().string(), 4), Split::train, 0)->tokenizer(), nullptr);
  write_description(folder.path(), {.encoding = "bytes", .vocabulary = 257});
  const auto train = make_dataset(tokens_at(folder.path().string(), 4), Split::train, 0);
  const auto test = make_dataset(tokens_at(folder.path().string(), 4), Split::test, 0);
  EXPECT_EQ(train->info().classes, 257);
  EXPECT_EQ(firsts(*train), firsts(*test));
  EXPECT_EQ(train->tokenizer()->decode(sample(*train, 1).tokens), "efgh");
  folder.write("tokens.json", {'{', '}'});
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(tokens_at(folder.path().string(), 4), Split::train, 0); }),
              HasSubstr("tokens.json"));
}

}  // namespace
}  // namespace paceline::data

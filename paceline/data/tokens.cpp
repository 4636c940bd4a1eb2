// tokens: text that is already encoded, in files of 16 or 32 bits per token (token_file.h), which are mapped and never read as a whole.
//
// data.root is a file, a folder (its *.bin), a pattern (shards/*.bin) or several of these, separated by commas. Files with "val" or "test"
// in their names are for the test if there are others for training; otherwise the first nine tenths of every file are for training.
//
// A sample is a window of `context` tokens, its targets are the tokens one position later. Windows do not overlap and do not reach from one
// file into the next; the seed draws their order. With augmentation each starts up to context−1 tokens later, as in `text`.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>

#include "paceline/data/dataset_files.h"
#include "paceline/data/sets.h"
#include "paceline/data/token_file.h"
#include "paceline/data/tokenizer.h"
#include "paceline/data/windows.h"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHolds = "a .bin file of tokens, a folder of them, a pattern, or several of these separated by commas";

/// Files that match a shell pattern, in alphabetical order.
std::vector<fs::path> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (files.empty()) throw DataError(pattern, fmt::format("matches no file; data.root must be {}", kHolds));
  return files;
}

std::vector<fs::path> files_at(const std::string& place) {
  std::error_code ignored;
  if (!is_there(place) && place.find_first_of("*?[") != std::string::npos) return matching(place);
  if (!is_there(place)) throw DataError(place, fmt::format("no such file or folder; data.root must be {}", kHolds));
  if (!fs::is_directory(place, ignored)) return {place};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(place))
    if (entry.path().extension() == ".bin") files.push_back(entry.path());
  if (files.empty()) throw DataError(place, "contains no *.bin file; make them with paceline tokenize");
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> list_files(const DataConfig& config) {
  std::string rest = config.root.empty() ? find_root(config, "tokens", kHolds).string() : config.root;
  if (is_there(rest)) return files_at(rest);  // the comma may be part of a file name
  std::vector<fs::path> files;
  for (std::size_t comma = 0; comma != std::string::npos; rest.erase(0, comma + 1)) {
    comma = rest.find(',');
    const auto some = files_at(rest.substr(0, comma));
    files.insert(files.end(), some.begin(), some.end());
    if (comma == std::string::npos) break;
  }
  return files;
}

bool is_for_test(const fs::path& file) {
  std::string name = file.filename().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("val") != std::string::npos || name.find("test") != std::string::npos;
}

/// Tokens [begin, end) of a file are for this split; `first` is the number of its first window among all files' windows.
struct Shard {
  TokenFile file;
  std::int64_t begin = 0, end = 0, first = 0;

  std::int64_t windows(std::int64_t context) const { return std::max<std::int64_t>(end - begin - 1, 0) / context; }
};

std::vector<Shard> open_shards(const DataConfig& config, const std::vector<fs::path>& files, Split split) {
  const auto tests = std::ranges::count_if(files, is_for_test);
  const bool named = tests > 0 && tests < std::ssize(files);
  std::vector<Shard> shards;
  std::int64_t windows = 0;
  for (const fs::path& path : files) {
    if (named && is_for_test(path) != (split == Split::test)) continue;
    Shard shard{.file = TokenFile(path, static_cast<int>(config.token_bits))};
    const std::int64_t count = shard.file.size(), cut = count / 10 * 9 + count % 10 * 9 / 10;
    shard.begin = named || split == Split::train ? 0 : cut;
    shard.end = named || split == Split::test ? count : cut;
    shard.first = windows;
    windows += shard.windows(config.context);
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::int64_t vocabulary_of(const DataConfig& config, const std::vector<fs::path>& files, const TokenFile& first) {
  if (config.vocabulary > 0) return config.vocabulary;
  if (const auto described = describe_tokens(files.front().parent_path())) return described->vocabulary;
  if (first.vocabulary()) return *first.vocabulary();
  throw ConfigError(
      fmt::format("{} has no header that names its tokenizer, and there is no {} beside it; set data.vocabulary to the number "
                  "of its tokens (GPT-2: 50257)",
                  first.path().string(), kTokensFile));
}

class TokenSet final : public WindowSet {
 public:
  TokenSet(Info info, fs::path folder, std::vector<Shard> shards, std::int64_t windows)
      : WindowSet(std::move(info), windows), folder_(std::move(folder)), shards_(std::move(shards)) {}

  std::unique_ptr<const Tokenizer> tokenizer() const override { return tokenizer_of(folder_); }

  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override {
    const Shard& shard = *std::prev(std::ranges::upper_bound(shards_, index, {}, &Shard::first));
    const std::int64_t start = place(shard.begin + (index - shard.first) * context(), shard.end, random);
    const auto first = static_cast<std::size_t>(slot * context()), count = static_cast<std::size_t>(context());
    shard.file.read(start, std::span(batch.tokens).subspan(first, count), info().classes);
    shard.file.read(start + 1, std::span(batch.targets).subspan(first, count), info().classes);
  }

 private:
  fs::path folder_;
  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<Dataset> make_tokens(const DataConfig& config, Split split, std::uint64_t) {
  if (config.token_bits != 16 && config.token_bits != 32)
    throw ConfigError(fmt::format("data.token_bits={}: tokens have 16 or 32 bits", config.token_bits));
  const std::vector<fs::path> files = list_files(config);
  std::vector<Shard> shards = open_shards(config, files, split);
  const std::int64_t vocabulary = vocabulary_of(config, files, shards.front().file),
                     windows = [&] { return shards.back().first + shards.back().windows(config.context); }();
  if (windows < 1)
    throw DataError(
        files.front().string(),
        fmt::format("its {} part is too short for data.context={} tokens and their targets; lower data.context, or use longer files",
                    split == Split::train ? "training" : "test", config.context));
  // Checked before the run starts if that is quick; read() checks every window anyway.
  constexpr std::int64_t kLookedThrough = std::int64_t{1} << 30;  // bytes
  std::int64_t looked = 0;
  for (const Shard& shard : shards) {
    const std::int64_t left = (kLookedThrough - looked) / (shard.file.bits() / 8), count = std::min(shard.end - shard.begin, left);
    shard.file.check(shard.begin, shard.begin + count, vocabulary);
    looked += count * (shard.file.bits() / 8);
  }
  Info info{.key = config.name,
            .input = {config.context},
            .classes = vocabulary,
            .tokens = true,
            .mean = {},
            .deviation = {},
            .target = {config.context}};
  return std::make_unique<TokenSet>(std::move(info), files.front().parent_path(), std::move(shards),
                                    samples_to_use(config, split, windows));
}

}  // namespace paceline::data

#include "paceline/data/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/data/token_file.h"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;

/// Collects the tokens of a split, and writes a file whenever there are enough.
class Shards {
 public:
  Shards(fs::path folder, std::string name, std::int64_t most, int bits)
      : folder_(std::move(folder)), name_(std::move(name)), most_(static_cast<std::size_t>(most)), bits_(bits) {}

  void add(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
      const std::size_t some = std::min(tokens.size(), most_ - tokens_.size());
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(some));
      tokens = tokens.subspan(some);
      if (tokens_.size() == most_) flush();
    }
  }

  void flush() {
    if (tokens_.empty()) return;
    files_.push_back(folder_ / fmt::format("{}_{:06}.bin", name_, files_.size()));
    write_token_file(files_.back(), tokens_, bits_);
    count_ += std::ssize(tokens_);
    tokens_.clear();
  }

  std::int64_t count() const { return count_; }
  const std::vector<fs::path>& files() const { return files_; }

 private:
  fs::path folder_;
  std::string name_;
  std::size_t most_;
  int bits_;
  std::vector<std::uint32_t> tokens_;
  std::vector<fs::path> files_;
  std::int64_t count_ = 0;
};

/// Encodes a text in pieces, several at a time, and passes their tokens on in order.
void encode_text(const Tokenizer& tokenizer, std::string_view text, int threads, Shards& shards,
                 const std::function<void(std::size_t)>& done) {
  constexpr std::size_t kPiece = 4 << 20;
  while (!text.empty()) {
    std::vector<std::future<std::vector<std::uint32_t>>> pieces;
    std::size_t bytes = 0;
    for (int i = 0; i < threads && !text.empty(); ++i) {
      const std::string_view piece = text.substr(0, place_to_cut(text, std::min(kPiece, text.size())));
      text.remove_prefix(piece.size());
      bytes += piece.size();
      pieces.push_back(std::async(threads > 1 ? std::launch::async : std::launch::deferred, [&tokenizer, piece] {
        std::vector<std::uint32_t> tokens;
        tokenizer.encode(piece, tokens);
        return tokens;
      }));
    }
    for (auto& piece : pieces) shards.add(piece.get());
    done(bytes);
  }
}

void refuse_old_tokens(const fs::path& folder) {
  ensure_writable_folder(folder);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".bin")
      throw ConfigError(fmt::format("{} already contains {}, and old and new tokens must not be mixed; name another folder, or remove it",
                                    folder.string(), entry.path().filename().string()));
}

}  // namespace

std::size_t place_to_cut(std::string_view text, std::size_t at) {
  const auto is_seen = [&](std::size_t i) {
    return text[i] > ' ' && text[i] < 0x7f;
  };  // only ASCII counts; other bytes may be part of a space
  for (std::size_t end = text.find('\n', std::max<std::size_t>(at, 1)); end != std::string_view::npos; end = text.find('\n', end + 1))
    if (is_seen(end - 1)) return end;
  return text.size();
}

Tokenized tokenize(const Tokenizer& tokenizer, const std::string& encoding, const TokenizeOptions& options,
                   const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  std::vector<MappedFile> documents;
  std::int64_t all = 0;
  for (const fs::path& file : options.files) documents.emplace_back(file), all += std::ssize(documents.back().bytes());
  if (all == 0) throw ConfigError("these files are empty; name files with text");
  refuse_old_tokens(options.folder);

  const int bits = tokenizer.vocabulary() <= 1 << 16 ? 16 : 32;
  Shards training(options.folder, "train", options.shard_tokens, bits), test(options.folder, "val", options.shard_tokens, bits);
  const auto test_bytes = static_cast<std::int64_t>(options.test_share * static_cast<double>(all));
  std::int64_t begin = 0, done = 0;  // bytes: before this document; encoded so far
  const auto count = [&](std::size_t bytes) { progress(done += static_cast<std::int64_t>(bytes), all); };
  for (const MappedFile& document : documents) {
    const std::string_view text(reinterpret_cast<const char*>(document.bytes().data()), document.bytes().size());
    const std::int64_t for_training = all - test_bytes - begin;
    std::size_t cut = text.size();
    if (for_training < std::ssize(text)) cut = for_training <= 0 ? 0 : place_to_cut(text, static_cast<std::size_t>(for_training));
    if (const auto end_of_text = tokenizer.end_of_text()) (cut > 0 ? training : test).add({&*end_of_text, 1});
    encode_text(tokenizer, text.substr(0, cut), options.threads, training, count);
    encode_text(tokenizer, text.substr(cut), options.threads, test, count);
    begin += std::ssize(text);
  }
  training.flush(), test.flush();
  write_description(options.folder, {.encoding = encoding, .vocabulary = tokenizer.vocabulary()});
  Tokenized made{.bytes = all, .training = training.count(), .test = test.count(), .files = training.files()};
  made.files.insert(made.files.end(), test.files().begin(), test.files().end());
  return made;
}

}  // namespace paceline::data

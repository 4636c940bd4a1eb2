// Checkpoints on disk: which are complete, which is the newest intact one, and which are removed.
#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/checkpoint_index.h"

namespace paceline::train {
namespace {

constexpr const char* kExtension = ".safetensors";

bool has_index(const std::filesystem::path& folder) {
  std::error_code none;
  return std::filesystem::is_regular_file(folder / kIndexFile, none);
}

bool is_step(const std::filesystem::path& path) { return path.filename().string().starts_with("step-"); }

/// A file, or a folder that has its index.
bool is_complete(const std::filesystem::path& path) { return is_step(path) && (path.extension() == kExtension || has_index(path)); }

}  // namespace

std::filesystem::path checkpoint_folder(const std::filesystem::path& folder, std::int64_t step) {
  return folder / fmt::format("step-{:010}", step);
}

std::filesystem::path checkpoint_file(const std::filesystem::path& folder, std::int64_t step) {
  return checkpoint_folder(folder, step) += kExtension;
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& path) {
  std::error_code code;
  const auto type_of = [&](const std::filesystem::path& place) {
    const auto type = std::filesystem::status(place, code).type();
    if (type == std::filesystem::file_type::none) throw DataError(place.string(), "cannot access it: " + code.message());
    return type;
  };
  if (type_of(path) == std::filesystem::file_type::regular || has_index(path)) return {path};
  const bool has_own = type_of(path / "checkpoints") == std::filesystem::file_type::directory;
  const auto folder = has_own ? path / "checkpoints" : path;
  std::vector<std::filesystem::path> files;
  if (type_of(folder) != std::filesystem::file_type::directory) return files;
  std::filesystem::directory_iterator item(folder, code);
  for (const std::filesystem::directory_iterator end; !code && item != end; item.increment(code))
    if (is_complete(item->path())) files.push_back(item->path());
  if (code) throw DataError(folder.string(), "cannot read the folder: " + code.message());
  std::sort(files.rbegin(), files.rend());  // steps are padded with zeros: the order of names is the order of steps
  return files;
}

FoundCheckpoint newest_good_checkpoint(const std::filesystem::path& path, Check check) {
  const auto files = list_checkpoints(path);
  if (files.empty()) throw DataError(path.string(), "no checkpoint found; name a run folder or a checkpoint");
  for (const auto& file : files) {
    try {
      return {file, read_checkpoint(file, check)};
    } catch (const OtherFormat&) {
      throw;
    } catch (const DataError& problem) {
      if (file == files.back()) throw;
      log::warning("{}; falling back to the checkpoint before it", problem.what());
    }
  }
  throw InternalError("no checkpoint was tried");
}

void remove_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;  // a file that cannot be removed does no harm
  std::filesystem::remove(path / kIndexFile, ignored);
  std::filesystem::remove_all(path, ignored);
}

void remove_unfinished(const std::filesystem::path& folder, const std::filesystem::path& before) {
  std::error_code ignored;
  std::vector<std::filesystem::path> unfinished;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    const bool half = item.path().extension() == ".part";
    const bool earlier = before.empty() || item.path().stem() < before.stem();
    if (half || (earlier && is_step(item.path()) && item.is_directory(ignored) && !has_index(item.path())))
      unfinished.push_back(item.path());
  }
  for (const auto& path : unfinished) std::filesystem::remove_all(path, ignored);
}

void prune_checkpoints(const std::filesystem::path& written, std::int64_t keep) try {
  const auto folder = written.parent_path();
  auto files = list_checkpoints(folder);
  keep -= static_cast<std::int64_t>(std::erase(files, written));
  files.erase(files.begin(), files.begin() + std::clamp<std::ptrdiff_t>(keep, 0, std::ssize(files)));
  for (const auto& file : files) remove_checkpoint(file);
  remove_unfinished(folder, written);
} catch (const DataError& problem) {
  log::warning("old checkpoints beside {} stay: {}", written.string(), problem.what());
} catch (const std::filesystem::filesystem_error& problem) {
  log::warning("old checkpoints beside {} stay: {}", written.string(), problem.code().message());
}

std::optional<std::filesystem::path> set_aside_behind(std::int64_t step, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> later = list_checkpoints(folder);
  std::erase_if(later, [&](const auto& file) { return file.stem() <= checkpoint_folder({}, step); });
  if (later.empty()) return std::nullopt;
  try {
    auto aside = folder / "aside-1";
    for (int number = 2; !std::filesystem::create_directory(aside); ++number) aside = folder / fmt::format("aside-{}", number);
    for (const auto& file : later) std::filesystem::rename(file, aside / file.filename());
    return aside;
  } catch (const std::filesystem::filesystem_error& problem) {
    throw ConfigError(fmt::format("cannot move the checkpoints after step {} in {} aside: {}; move them by hand", step, folder.string(),
                                  problem.code().message()));
  }
}

}  // namespace paceline::train

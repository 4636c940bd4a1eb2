// A run folder holds everything of one run: the resolved recipe, the records of the listeners, the checkpoints.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::observe {

class RunFolder {
 public:
  /// Creates <runs>/<name>, or <name>-2, -3, … if that is taken. Two processes that ask at once get two folders. Throws ConfigError if
  /// nothing can be written there.
  static RunFolder create(const std::filesystem::path& runs, const std::string& name);

  /// Opens an existing one, to resume in it. Throws ConfigError.
  static RunFolder open(const std::filesystem::path& folder);

  /// The run of `job`, found by the mark() in its folder; nullopt if there is none.
  static std::optional<RunFolder> find(const std::filesystem::path& runs, const std::string& job);
  /// Lets other processes of the run find the folder, including those that are restarted.
  void mark(const std::string& job) const;
  bool is_of(const std::string& job) const;
  /// Removes the marks of earlier jobs with that name, so that their runs are not mistaken for this one's.
  static void forget(const std::filesystem::path& runs, const std::string& job);

  /// <network>-<dataset>-<yyyymmdd-hhmmss> in local time, without characters that are special in a path or a shell.
  static std::string default_name(std::string_view network, std::string_view dataset, std::time_t now);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path recipe() const { return path_ / "recipe.toml"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path predictions() const { return path_ / "predictions.csv"; }
  std::filesystem::path new_trace() const;  // trace.json; trace-2.json, … if earlier parts of the run have written one
  std::filesystem::path curve() const { return path_ / "curve.svg"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path servers() const { return path_ / "servers"; }  // snapshots of parameter servers
  std::filesystem::path key() const { return servers() / "key"; }      // of the job, for workers that join; only its owner can read it

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace paceline::observe

#include "peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "helpers.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/launch/capture.h"

namespace paceline::bench {
namespace {

bool has_torch(const std::string& python) {
  try {
    return launch::capture({python, "-c", "import torch"}).exit.good();
  } catch (const ConfigError&) {  // there is no such program
    return false;
  }
}

}  // namespace

std::string python_if_any(const Options& options) {
  try {
    return python_with_torch(options);
  } catch (const ConfigError& error) {
    log::info("no peer: {}", error.what());
    return {};
  }
}

std::string python_with_torch(const Options& options) {
  if (!options.python.empty()) return options.python;
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (has_torch(python)) {
      log::info("the peer is PyTorch in {}", python);
      return python;
    }
  throw ConfigError(
      "neither python3 nor /usr/bin/python3 has PyTorch (apt-get install python3-torch); --python names another Python, --no-peer leaves "
      "the peer out");
}

nlohmann::json run_peer(const std::string& python, const std::string& script, const std::vector<std::string>& words) {
  std::vector<std::string> command = {python, helper(script)};
  command.insert(command.end(), words.begin(), words.end());
  const launch::Captured peer = launch::capture(command);
  if (!peer.exit.good())
    throw ConfigError(
        fmt::format("the peer failed: {}: {}; check that '{}' has PyTorch (apt-get install python3-torch). --python names another Python, "
                    "--no-peer leaves the peer out",
                    fmt::join(command, " "), peer.complaint(), python));
  return nlohmann::json::parse(peer.out);
}

nlohmann::json run_peer_with(const std::string& python, const std::string& script,
                             std::initializer_list<std::pair<const char*, std::int64_t>> numbers) {
  std::vector<std::string> words;
  for (const auto& [name, value] : numbers) words.insert(words.end(), {fmt::format("--{}", name), std::to_string(value)});
  return run_peer(python, script, words);
}

}  // namespace paceline::bench

#include "paceline/train/shared_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "paceline/base/host.h"

namespace paceline::train {
namespace {

constexpr std::size_t kLongestText = 4096;  // bytes: a path, or one line of an error

}  // namespace

std::vector<std::string> gather_texts(comm::Communicator& comm, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::byte> texts(ranks * kLongestText);
  std::byte* own = texts.data() + static_cast<std::size_t>(comm.rank()) * kLongestText;
  std::memcpy(own, mine.data(), std::min(mine.size(), kLongestText - 1));
  if (comm.size() > 1) comm.run(comm::all_gather(texts, {.deadline = comm::kUntilTheEnd}));
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < ranks; ++rank) all.emplace_back(reinterpret_cast<const char*>(texts.data() + rank * kLongestText));
  return all;
}

std::filesystem::path tell_folder(comm::Communicator& comm, const std::filesystem::path& folder) {
  const std::string mine = comm.rank() == 0 ? std::filesystem::absolute(folder).string() : std::string();
  const std::filesystem::path told = gather_texts(comm, mine).front();
  return comm.rank() == 0 ? folder : told;
}

// A folder of the same name may be on another disk: a file that worker 0 puts there identifies it.
std::vector<int> who_sees(comm::Communicator& comm, const std::filesystem::path& folder) {
  if (comm.size() == 1) return {0};
  std::error_code ignored;
  std::string name;
  if (comm.rank() == 0) {
    name = fmt::format(".seen-{}-{}", host_name(), ::getpid());
    std::filesystem::create_directories(folder, ignored);
    if (!std::ofstream(folder / name)) name.clear();  // a full disk: the folder alone must do
  }
  const auto mark = folder / gather_texts(comm, name).front();
  std::vector<std::int32_t> sees(static_cast<std::size_t>(comm.size()));
  sees[static_cast<std::size_t>(comm.rank())] = comm.rank() == 0 || std::filesystem::exists(mark, ignored) ? 1 : 0;
  comm.run(comm::all_gather(sees, {.deadline = comm::kUntilTheEnd}));
  if (comm.rank() == 0 && !name.empty()) std::filesystem::remove(mark, ignored);
  std::vector<int> workers;
  for (std::size_t rank = 0; rank < sees.size(); ++rank)
    if (sees[rank]) workers.push_back(static_cast<int>(rank));
  return workers;
}

}  // namespace paceline::train

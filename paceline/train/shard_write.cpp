#include "paceline/train/shard_write.h"

#include <ATen/ATen.h>

#include <ctime>

#include "paceline/base/error.h"

namespace paceline::train {

double thread_cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::future<Written> write_in_background(const Clock& clock, const std::filesystem::path& file, MakeFolder folder,
                                         std::unique_ptr<const ShardCopy> copy,
                                         std::function<safetensors::Metadata(const ShardCopy&)> metadata) {
  auto work = [&clock, file, folder, copy = std::move(copy), metadata = std::move(metadata)]() mutable {
    Written written;
    const Nanoseconds began = clock.now();
    const double before = thread_cpu_s();
    try {
      if (folder == MakeFolder::yes) std::filesystem::create_directories(file.parent_path());
      else if (!std::filesystem::is_directory(file.parent_path()))
        throw DataError(file.string(), "this process cannot access the run's folder; let all hosts share train.runs");
      written.bytes = safetensors::write(file, copy->host.views(), metadata(*copy)).bytes;
      copy.reset();
    } catch (const std::exception& problem) {
      written.problem = problem.what();
    }
    written.cpu_s = thread_cpu_s() - before;
    written.seconds = seconds(clock.now() - began);
    return written;
  };
  return std::async(std::launch::async, std::move(work));
}

}  // namespace paceline::train

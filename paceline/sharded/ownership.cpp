#include "paceline/sharded/ownership.h"

#include <algorithm>

namespace paceline::sharded {

tensor::Owners part_owners(const tensor::Arena& arena, std::vector<data_parallel::Bucket> buckets, int workers) {
  std::ranges::sort(buckets, {}, &data_parallel::Bucket::begin);
  std::vector<tensor::OwnedRange> parts;
  std::int64_t done = 0;
  const auto everybody_until = [&](std::int64_t end) {
    if (done < end) parts.push_back({done, end, tensor::kEverybody});
  };
  for (const data_parallel::Bucket& bucket : buckets) {
    everybody_until(bucket.begin);
    for (int rank = 0; rank < workers; ++rank) {
      const schedule::Range part = schedule::part(bucket.count(), workers, rank);
      parts.push_back({bucket.begin + part.begin, bucket.begin + part.end, rank});
    }
    done = bucket.end;
  }
  everybody_until(arena.length());
  return tensor::Owners(parts);
}

}  // namespace paceline::sharded

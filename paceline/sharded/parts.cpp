#include "paceline/sharded/parts.h"

#include <algorithm>

namespace paceline::sharded {

tensor::Owners part_owners(std::vector<data_parallel::Bucket> buckets, int workers) {
  std::ranges::sort(buckets, {}, &data_parallel::Bucket::begin);
  std::vector<tensor::OwnedRange> parts;
  for (const data_parallel::Bucket& bucket : buckets)
    for (int rank = 0; rank < workers; ++rank) {
      const schedule::Range part = schedule::part(bucket.count(), workers, rank);
      parts.push_back({bucket.begin + part.begin, bucket.begin + part.end, rank});
    }
  return tensor::Owners(parts);
}

}  // namespace paceline::sharded

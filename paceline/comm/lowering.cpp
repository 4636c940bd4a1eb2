#include "paceline/comm/lowering.h"

#include "paceline/comm/hierarchical.h"
#include "paceline/comm/shared/direct.h"

namespace paceline::comm {
namespace {

std::unique_ptr<Activity> lower_direct(const LoweringSite& site) {
  return std::make_unique<shared::Direct>(site.host, site.operation, site.sequence);
}

std::unique_ptr<Activity> lower_hierarchical(const LoweringSite& site) {
  return std::make_unique<Hierarchical>(site.transport, site.scratch, site.host, site.operation, site.sequence, site.first_tag,
                                        site.problem);
}

constexpr Entry<Lower> kLowerings[] = {
    {"direct", "shared/direct.h: all ranks combine and copy in memory that all of them reach", lower_direct},
    {"hierarchical", "hierarchical.h: shared/direct.h inside each host, rings across", lower_hierarchical},
};

}  // namespace

std::span<const Entry<Lower>> lowerings() { return kLowerings; }

}  // namespace paceline::comm

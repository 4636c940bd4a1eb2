#include "paceline/comm/lowering.h"

#include "paceline/comm/hierarchical.h"
#include "paceline/comm/shared/direct.h"

namespace paceline::comm {
namespace {

std::unique_ptr<Activity> lower_direct(const LoweringSite& site) {
  return std::make_unique<shared::Direct>(site.host, site.operation, site.sequence,
                                          shared::Direct::On{.short_sum = site.problem.short_sum});
}

void run_direct(const LoweringSite& site, Driver& driver, const Call& call) {
  shared::Direct direct(site.host, site.operation, site.sequence, {.short_sum = site.problem.short_sum});
  driver.run(direct, call);
}

std::unique_ptr<Activity> lower_hierarchical(const LoweringSite& site) {
  return std::make_unique<Hierarchical>(site.transport, site.scratch, site.host, site.operation, site.sequence, site.first_tag,
                                        site.problem);
}

constexpr Entry<LoweredPath> kLowerings[] = {
    {"direct", "shared/direct.h: all ranks combine and copy in memory that all of them reach", {.make = lower_direct, .run = run_direct}},
    {"hierarchical", "hierarchical.h: shared/direct.h inside each host, rings across", {.make = lower_hierarchical}},
};

}  // namespace

std::span<const Entry<LoweredPath>> lowerings() { return kLowerings; }

}  // namespace paceline::comm

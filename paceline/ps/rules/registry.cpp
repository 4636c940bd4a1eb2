// The update rules. To add one: its file here, its row below, its formula and a case in tests/ps/oracle.h.
#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {

// Each comes from the file of its name, or stands with the one that it is a form of.
std::unique_ptr<UpdateRule> make_asgd(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_dc_asgd(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_lc_asgd(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_staleness_aware(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_gap_aware(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_dana(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_downpour(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_easgd(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_dc_staleness_aware(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_stability_cap(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_async_nesterov(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_delayed_nesterov(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_adam_decay(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_cgad(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_heloco(const RuleSetup& setup);
std::unique_ptr<UpdateRule> make_look_ahead(const RuleSetup& setup);

namespace {

constexpr Entry<RuleKind> kRules[] = {
    {"average", "the mean of the gradients of an update (SSGD with bsp)", {.make = make_asgd, .adds = true}},
    {"asgd", "every gradient as it comes", {.make = make_asgd, .adds = true}},
    {"dc_asgd", "compensates the delay by the gradient's own curvature; constant or adaptive", {make_dc_asgd}},
    {"lc_asgd", "compensates the delay by the loss that is predicted for it", {make_lc_asgd}},
    {"staleness_aware", "the rate divided by the staleness", {make_staleness_aware}},
    {"dc_staleness_aware", "both: compensates by curvature, and divides the rate by the staleness", {make_dc_staleness_aware}},
    {"stability_cap", "the rate kept below what curvature and staleness can bear, both measured", {make_stability_cap}},
    {"gap_aware", "the gradient divided by how far the parameters have moved", {make_gap_aware}},
    {"dana", "a momentum for each worker, and a look-ahead over all of them", {make_dana}},
    {"downpour", "the sum of several gradients of a worker that goes on by itself", {make_downpour}},
    {"easgd", "replicas and the server's parameters attract each other", {make_easgd}},
    {"async_nesterov", "local steps: an outer Nesterov step with every push", {make_async_nesterov}},
    {"delayed_nesterov", "local steps: an outer step with every push, whose momentum changes with every N-th", {make_delayed_nesterov}},
    {"adam_decay", "local steps: an outer Adam step, with less of older pushes", {make_adam_decay}},
    {"cgad", "the same with a cosine gate that shuts out the oldest", {make_cgad}},
    {"heloco", "local steps: pushes turned towards the outer momentum, tensor by tensor", {make_heloco}},
    {"look_ahead", "local steps: workers begin where the outer momentum will have carried the parameters", {make_look_ahead}},
};

}  // namespace

std::span<const Entry<RuleKind>> update_rules() { return kRules; }

std::unique_ptr<UpdateRule> make_rule(const RuleSetup& setup) {
  return find(update_rules(), "update rule", setup.config.rule).make.make(setup);
}

}  // namespace paceline::ps

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
    {"average", "applies the mean of the gradients of an update (SSGD with bsp)", {.make = make_asgd, .adds = true}},
    {"asgd", "applies every gradient as it arrives", {.make = make_asgd, .adds = true}},
    {"dc_asgd", "compensates the delay by the gradient's own curvature; constant or adaptive", {make_dc_asgd}},
    {"lc_asgd", "compensates the delay by the losses that are predicted for it", {make_lc_asgd}},
    {"staleness_aware", "divides the rate by the staleness", {make_staleness_aware}},
    {"dc_staleness_aware", "compensates by curvature, and divides the rate by the staleness", {make_dc_staleness_aware}},
    {"stability_cap", "keeps the rate below the limit of stability, from measured curvature and staleness", {make_stability_cap}},
    {"gap_aware", "divides the gradient by how far the parameters have moved", {make_gap_aware}},
    {"dana", "keeps a momentum for each worker, and looks ahead over all of them", {make_dana}},
    {"downpour", "applies the sum of several gradients of a worker that trains by itself meanwhile", {make_downpour}},
    {"easgd", "replicas and the server's parameters attract each other", {make_easgd}},
    {"async_nesterov", "local steps: an outer Nesterov step per push", {make_async_nesterov}},
    {"delayed_nesterov", "local steps: an outer step per push, with a momentum that changes at every N-th", {make_delayed_nesterov}},
    {"adam_decay", "local steps: an outer Adam step, in which older pushes weigh less", {make_adam_decay}},
    {"cgad", "local steps: adam_decay with a cosine gate that ignores the oldest pushes", {make_cgad}},
    {"heloco", "local steps: pushes turned towards the outer momentum, tensor by tensor", {make_heloco}},
    {"look_ahead", "local steps: workers start where the outer momentum will have moved the parameters", {make_look_ahead}},
};

}  // namespace

std::span<const Entry<RuleKind>> update_rules() { return kRules; }

std::unique_ptr<UpdateRule> make_rule(const RuleSetup& setup) {
  return find(update_rules(), "update rule", setup.config.rule).make.make(setup);
}

}  // namespace paceline::ps

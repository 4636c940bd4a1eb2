// How plans are shown: tables, one plan in full, JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paceline/perf/plan.h"

namespace paceline::cli {

std::string plans_text(const perf::PlanQuestion& question, const perf::Plans& plans);
/// One plan: where its time and memory go, what would make it faster, its settings and its step program.
std::string explain_text(const perf::PlanQuestion& question, const perf::Plan& plan, std::size_t number);
nlohmann::ordered_json plans_json(const perf::PlanQuestion& question, const perf::Plans& plans);

/// The duration of a step: "231 ms", "1.25 s".
std::string show_step(double seconds);

}  // namespace paceline::cli

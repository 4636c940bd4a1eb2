// What a rank cannot reduce in place as it arrives.
//
// Sends carry what the buffer held when the round began, and reductions happen in the order of the list. So data for elements that are
// still being sent, or that an earlier step of the round reduces, is held in separate memory until the round's messages are done.
#pragma once

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// For each step of a round: whether it is a reduction whose arriving data is held.
std::vector<bool> held(std::span<const Step> round);

/// Elements of a whole list that are held.
std::int64_t held_elements(std::span<const Step> steps);

/// The steps of the first round of a list; the rest follows it.
std::span<const Step> first_round(std::span<const Step> steps);

}  // namespace paceline::schedule

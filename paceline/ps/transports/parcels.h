// What of a gradient goes to each server. All servers use it, or none: one that is not finite anywhere, or becomes so by compression, is
// not sent, and its refusal counted.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "paceline/ps/kernels.h"
#include "paceline/ps/transports/push_coder.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

struct Parcels {
  wire::PushRequest::Kind kind = wire::PushRequest::plain;
  std::vector<std::span<const std::byte>> payloads = {};  // by server
};

/// `ranges` of the gradient, by server; `encoders` likewise, or none. for_each_server(act) calls act(0), act(1), …, perhaps at the same
/// time.
template <class ForEachServer>
Parcels parcels_of(std::span<const std::span<float>> ranges, std::span<PushEncoder> encoders, double epoch,
                   const ForEachServer& for_each_server) {
  Parcels parcels{.payloads = {ranges.size(), std::span<const std::byte>{}}};
  const auto finite = [](std::span<float> range) { return all_finite(range.data(), std::ssize(range)); };
  bool good = std::ranges::all_of(ranges, finite);
  if (good) {
    parcels.kind = encoders.empty() ? wire::PushRequest::plain : wire::PushRequest::coded;
    for_each_server([&](std::size_t i) {
      parcels.payloads[i] = encoders.empty() ? std::as_bytes(ranges[i]) : encoders[i].encode(ranges[i].data(), epoch);
    });
    good = std::ranges::none_of(encoders, &PushEncoder::spoilt);
  }
  if (!good) parcels = {wire::PushRequest::not_finite, {ranges.size(), std::span<const std::byte>{}}};
  return parcels;
}

}  // namespace paceline::ps

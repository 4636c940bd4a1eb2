#include "paceline/nn/model.h"

#include "paceline/base/error.h"

namespace paceline::nn {

void Trace::begin(std::size_t places, std::size_t units, Units range) {
  saved.resize(places), later.resize(units), forward.resize(units, false);
  for (std::size_t unit = range.first; unit < range.last; ++unit) forward[unit] = true;
}

void Trace::use_up(Units range) {
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    if (unit >= forward.size() || !forward[unit])
      throw ConfigError("a backward pass needs the trace of a forward pass of its own, and uses it up; make another forward pass first");
    forward[unit] = false;
  }
}

}  // namespace paceline::nn

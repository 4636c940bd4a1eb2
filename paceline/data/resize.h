// Resizing: a box of a picture to a square of normalised floats, in one pass over the output's rows.
//
// Bilinear, with a triangle that widens where the picture shrinks, so that every source pixel counts and fine patterns do not turn into
// others.
#pragma once

#include "paceline/data/augment.h"
#include "paceline/data/picture.h"

namespace paceline::data {

/// In pixels of the picture; pixel i reaches from i to i+1.
struct Box {
  float x = 0, y = 0, width = 0, height = 0;
};

/// Which source pixels an output pixel is made of: `count` neighbours from first[i] on, with weights that add up to 1.
struct Taps {
  /// `size` output pixels from [begin, begin + length) of a line of `limit` pixels.
  void aim(float begin, float length, int size, int limit);
  const float* of(int i) const { return weights.data() + static_cast<std::ptrdiff_t>(i) * count; }

  int count = 0;
  std::vector<int> first;
  std::vector<float> weights;
};

class Resizer {
 public:
  /// Writes 3 × size × size floats to `out`.
  void resize(const Picture& picture, const Box& box, int size, bool flip, const Normalisation& normalisation, float* out);

 private:
  /// Blends the source rows of one output row into row_.
  void blend_rows(const std::uint8_t* source, std::ptrdiff_t row_bytes, const float* weight);
  /// Blends the columns of row_ into one output row of each plane.
  void blend_columns(int size, bool flip, const Normalisation& normalisation, float* out) const;

  Taps across_, down_;
  std::vector<float> row_;  // one output row, still as wide as the picture
};

}  // namespace paceline::data

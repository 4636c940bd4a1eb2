// Resizing: a box of a picture to a square of normalised floats.
//
// Bilinear, with a triangle that widens where the picture shrinks, so that every source pixel counts and fine patterns do not turn into
// others. First across, each source row once, into planes; then down, where a row of the output is a weighted sum of a few of those rows.
#pragma once

#include <span>
#include <vector>

#include "paceline/data/augment.h"
#include "paceline/data/picture.h"

namespace paceline::data {

/// Which source pixels an output pixel is made of: `count` neighbours from first[i] on, with weights that add up to 1.
struct Taps {
  /// `size` output pixels from [begin, begin + length) of a line of `whole` pixels, of which those from `offset` to `offset + held` are
  /// here and are counted from 0.
  void aim(float begin, float length, int size, int whole, int offset, int held);
  void mirror();          ///< the last output pixel becomes the first
  void extend(int size);  ///< to so many output pixels, by repeating the last one
  const float* of(int i) const { return weights.data() + static_cast<std::ptrdiff_t>(i) * count; }

  int count = 0;
  std::vector<int> first;
  std::vector<float> weights;
};

class Resizer {
 public:
  /// Writes 3 × size × size floats to `out`. The box counts in pixels of picture.whole; the picture must hold what it needs.
  void resize(const Picture& picture, const Box& box, int size, bool flip, const Normalisation& normalisation, float* out);

  /// What resize() looks at: the box and the reach of the triangles at its border.
  static Box needed(const Box& box, int size);

 private:
  float* row(int y) { return rows_.data() + static_cast<std::ptrdiff_t>(y % down_.count) * 3 * stride_; }
  /// Resizes a source row across, into row(y).
  void sweep(const Picture& picture, int y);
  /// A line of the output from the rows that were swept, normalised.
  void blend(int y, int channel, const Normalisation& normalisation, std::span<float> out);
  template <int kCount>
  void sweep_taps(float* out) const;

  Taps across_, down_;
  std::ptrdiff_t stride_ = 0;  // of a plane in rows_: the output's size, rounded up to whole registers
  std::vector<float> pixels_;  // one source row
  std::vector<float> rows_;    // the last down_.count rows that were swept, three planes each
};

}  // namespace paceline::data

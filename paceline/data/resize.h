// Resizing: a box of an image to a square of normalised floats.
//
// Bilinear, with a triangular filter that widens when the image is reduced, so that every source pixel counts and fine patterns do not
// alias. First horizontally, each source row once, into planes; then vertically: an output row is a weighted sum of a few of those rows.
#pragma once

#include <span>
#include <vector>

#include "paceline/data/augment.h"
#include "paceline/data/image_decoder.h"

namespace paceline::data {

/// The source pixels of an output pixel: `count` neighbours starting at first[i], with weights whose sum is 1.
struct Taps {
  /// `size` output pixels from [begin, begin + length) of a line of `whole` pixels, of which those from `offset` to `offset + held` are
  /// held, and are counted from 0.
  void aim(float begin, float length, int size, int whole, int offset, int held);
  void mirror();          ///< the last output pixel becomes the first
  void extend(int size);  ///< to `size` output pixels, by repeating the last one
  const float* of(int i) const { return weights.data() + static_cast<std::ptrdiff_t>(i) * count; }

  int count = 0;
  std::vector<int> first;
  std::vector<float> weights;
};

class Resizer {
 public:
  /// Writes 3 × size × size floats to `out`. The box is in pixels of image.whole; the image must hold the part that it needs.
  void resize(const DecodedImage& image, const Box& box, int size, bool flip, const Normalisation& normalisation, float* out);

  /// What resize() reads: the box, and the extent of the filter at its border.
  static Box needed(const Box& box, int size);

 private:
  float* row(int y) { return rows_.data() + static_cast<std::ptrdiff_t>(y % down_.count) * 3 * stride_; }
  /// Resizes a source row horizontally, into row(y).
  void sweep(const DecodedImage& image, int y);
  /// Computes a normalised output line from the swept rows.
  void blend(int y, int channel, const Normalisation& normalisation, std::span<float> out);
  template <int kCount>
  void sweep_taps(float* out) const;

  Taps across_, down_;
  std::ptrdiff_t stride_ = 0;  // of a plane in rows_: the output's size, rounded up to whole registers
  std::vector<float> pixels_;  // one source row
  std::vector<float> rows_;    // the last down_.count rows that were swept, three planes each
};

}  // namespace paceline::data

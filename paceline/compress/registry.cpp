#include "paceline/compress/compressor.h"

namespace paceline::compress {

// Each is defined in the file of the same name.
Compressor fp16();
Compressor bf16();
Compressor int8();
Compressor dynamic8();
Compressor onebit();
Compressor ternary();
Compressor sign();
Compressor threshold();
Compressor topk();
Compressor dgc();
Compressor powersgd();

std::span<const Entry<Compressor>> compressors() {
  static const Entry<Compressor> table[] = {
      {"fp16", "half precision: 5 bits of exponent, 10 of fraction; half the bytes", fp16()},
      {"bf16", "bfloat16: a float's exponent, 7 bits of fraction; half the bytes", bf16()},
      {"int8", "127 levels per sign and block, with random rounding (QSGD); a quarter of the bytes", int8()},
      {"dynamic8", "8-bit floats with a dynamic exponent, scaled by a block's maximum; a quarter of the bytes", dynamic8()},
      {"onebit", "signs, and two means per tensor; 1/32 of the bytes", onebit()},
      {"ternary", "−s, 0 or s at random, with one s per tensor (TernGrad); 1/16 of the bytes", ternary()},
      {"sign", "signs by majority vote; 1/32 of the bytes", sign()},
      {"threshold", "±τ where a value exceeds τ (Strom); 4 bytes for each such value", threshold()},
      {"topk", "the values of largest magnitude and their positions; 2 × density of the bytes", topk()},
      {"dgc", "topk with momentum correction and a warm-up of the density (Deep Gradient Compression)", dgc()},
      {"powersgd", "two low-rank factors per matrix, by power iteration", powersgd()},
  };
  return table;
}

}  // namespace paceline::compress

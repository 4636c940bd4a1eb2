// All compressors, for the table in registry.cpp. Each comes from the file of its name.
#pragma once

#include "paceline/compress/compressor.h"

namespace paceline::compress {

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

}  // namespace paceline::compress

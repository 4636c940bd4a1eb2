// Read by clang-tidy alone, in front of files that include LibTorch (tools/lint). LibTorch 1.13 has vectors of a type that is not
// complete yet; as C++20 clang 14 wants to know its size at once, because there the members of a vector are constexpr. g++ does not mind.
// So <vector> comes first, as it was in C++17; the second name is that of a function which is declared constexpr elsewhere.
#pragma once

#include <string>

#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_a1_of_bits
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")

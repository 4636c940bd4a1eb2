// Runs a formula over a range, where the range lies: on this thread with the processor's widest vectors, or on a GPU's stream.
#pragma once

#include "paceline/ps/formulas.h"

namespace paceline::ps {

/// Where the server's memory lies.
struct Place {
  bool cuda = false;
  void* stream = nullptr;  // a cudaStream_t
};

template <class Formula>
void for_each(const Place& place, std::int64_t count, const Formula& formula);

/// The same, divided among this thread's OpenMP threads where the range lies in host memory.
template <class Formula>
void for_each_parallel(const Place& place, std::int64_t count, const Formula& formula);

/// Σ aᵢ bᵢ in double, in the same order on every run; on a GPU it waits for the stream.
double dot(const Place& place, std::int64_t count, const float* a, const float* b);

/// Waits until everything that was asked of the place is done; in host memory it is.
void settle(const Place& place);

namespace cuda {
void settle(void* stream);
double dot(void* stream, std::int64_t count, const float* a, const float* b);
template <class Formula>
void launch(void* stream, std::int64_t count, const Formula& formula);
}  // namespace cuda

}  // namespace paceline::ps

// Runs a formula over a range, wherever it lies: in host memory on this thread with the processor's widest vectors, or on a GPU's stream.
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

/// The same; a range in host memory is divided among this thread's OpenMP threads.
template <class Formula>
void for_each_parallel(const Place& place, std::int64_t count, const Formula& formula);

/// Σ aᵢ bᵢ in double, in the same order on every run; on a GPU it waits for the stream.
double dot(const Place& place, std::int64_t count, const float* a, const float* b);

/// Waits until all work that was enqueued for the place is done; in host memory there is none.
void settle(const Place& place);

namespace cuda {
void settle(void* stream);
double dot(void* stream, std::int64_t count, const float* a, const float* b);
template <class Formula>
void launch(void* stream, std::int64_t count, const Formula& formula);
}  // namespace cuda

}  // namespace paceline::ps

#include "paceline/ps/kernels.h"

#include "paceline/base/error.h"
#include "paceline/base/simd.h"
#include "paceline/optim/parallel.h"

namespace paceline::ps {
namespace {

template <class Formula>
struct Loop {
  struct Arguments {
    const Formula& formula;
    std::int64_t begin, end;
  };
  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const Formula formula = arguments.formula;  // a copy: the compiler must see that no store of the loop changes it
    const std::int64_t begin = arguments.begin;
    for_each_element(arguments.end - begin, [=](std::int64_t i) PACELINE_INLINE { formula(begin + i); });
  }
};

}  // namespace

#if !PACELINE_WITH_CUDA
namespace cuda {
template <class Formula>
void launch(void*, std::int64_t, const Formula&) {
  throw InternalError("a server's memory lies on a GPU, in a build without CUDA");
}
void settle(void*) {}
double dot(void*, std::int64_t, const float*, const float*) {
  throw InternalError("a server's memory lies on a GPU, in a build without CUDA");
}
}  // namespace cuda
#endif

double dot(const Place& place, std::int64_t count, const float* a, const float* b) {
  if (place.cuda) return cuda::dot(place.stream, count, a, b);
  constexpr std::int64_t kLanes = 8;  // independent sums, which hide the latency of additions
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

void settle(const Place& place) {
  if (place.cuda) cuda::settle(place.stream);
}

template <class Formula>
void for_each(const Place& place, std::int64_t count, const Formula& formula) {
  if (place.cuda) cuda::launch(place.stream, count, formula);
  else Simd<Loop<Formula>>::run({formula, 0, count});
}

template <class Formula>
void for_each_parallel(const Place& place, std::int64_t count, const Formula& formula) {
  if (place.cuda) return cuda::launch(place.stream, count, formula);
  optim::on_threads(count, [&](int thread, int threads) {
    const auto cut = [&](int share) { return share == threads ? count : count * share / threads / 16 * 16; };
    Simd<Loop<Formula>>::run({formula, cut(thread), cut(thread + 1)});
  });
}

#define PACELINE_INSTANTIATE(Formula)                                          \
  template void for_each<Formula>(const Place&, std::int64_t, const Formula&); \
  template void for_each_parallel<Formula>(const Place&, std::int64_t, const Formula&);
PACELINE_PS_FORMULAS(PACELINE_INSTANTIATE)
#undef PACELINE_INSTANTIATE

}  // namespace paceline::ps

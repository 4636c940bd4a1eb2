#include "paceline/ps/executors.h"

namespace paceline::ps {
namespace {

constexpr Executor kExecutors[] = {
    {"threads", "workers are threads of one process, each at its own pace", {}},
    {"processes", "servers and workers are processes, which exchange messages", {.processes = true}},
    {"virtual", "one thread plays all workers, in the order of a virtual clock", {.virtual_clock = true}},
};

}  // namespace

std::span<const Executor> executors() { return kExecutors; }

}  // namespace paceline::ps

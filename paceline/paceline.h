// For a training loop of one's own: workers, and data parallelism among them.
#pragma once

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/data_parallel.h"

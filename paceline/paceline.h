// For a training loop of one's own: workers, what they do together in it, and what main() does with errors.
#pragma once

#include "paceline/base/program.h"
#include "paceline/central/server_client.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/data_parallel.h"
#include "paceline/data_parallel/replica.h"

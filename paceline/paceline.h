// Everything public in the components that a program links, each of which defines PACELINE_HAS_…. Without any of these: all of it.
#pragma once

#include "paceline/version.h"

#if PACELINE_HAS_PROGRAM
#include "paceline/program.h"
#elif PACELINE_HAS_TRAIN
#include "paceline/train.h"
#elif PACELINE_HAS_PARAMETER_SERVER
#include "paceline/parameter_server.h"
#elif PACELINE_HAS_DATA_PARALLEL
#include "paceline/data_parallel.h"
#elif PACELINE_HAS_COMM
#include "paceline/comm.h"
#else
#include "paceline/program.h"
#endif

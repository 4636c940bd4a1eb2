// Component comm: ranks that talk. No LibTorch.
//
//   const auto comm = paceline::comm::connect();                        // finds its rank and the others by itself
//   comm->run(paceline::comm::allreduce(values));                       // a vector, a span, or an at::Tensor
//
// docs/api/comm.md. Headers in folders below this one may move; include this one.
#pragma once

#include "paceline/base/error.h"
#include "paceline/base/run_program.h"
#include "paceline/comm/communicator.h"
#include "paceline/comm/connect.h"
#include "paceline/comm/mesh.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/work.h"
#include "paceline/comm/world.h"
#include "paceline/version.h"

// Component data_parallel: your own training loop on many workers. Any torch::nn::Module, any torch::optim, or the Updater here.
//
//   paceline::DataParallel parallel(*net, *comm);                       // backward() now leaves the mean of all workers' gradients
//   paceline::LocalSgd average(*net, *comm, {.period = 8});             // or: each worker trains a replica, averaged every 8 steps
//   paceline::tensor::Arena arena = paceline::tensor::adopt(*net);      // or: one worker, all parameters in one flat buffer
//
// docs/api/data_parallel.md. Headers in folders below this one may move; include this one.
#pragma once

#include "paceline/comm.h"
#include "paceline/data_parallel/data_parallel.h"
#include "paceline/data_parallel/replica.h"
#include "paceline/data_parallel/sharded_sampler.h"
#include "paceline/step/updater.h"
#include "paceline/tensor/arena.h"

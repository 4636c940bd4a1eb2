// Component parameter_server: servers hold the parameters, and the workers of your own loop push gradients and pull parameters.
//
//   if (paceline::serve(*net, options)) return 0;                       // this process was a server, and all workers have left
//   paceline::ServerClient server(*net, options);
//   server.step(0.05);                                                  // after backward()
//
// docs/api/parameter_server.md. Headers in folders below this one may move; include this one.
#pragma once

#include "paceline/central/server_client.h"
#include "paceline/data_parallel.h"

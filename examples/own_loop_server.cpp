// A parameter server in a loop of one's own: asynchronous workers with delay compensation (DC-ASGD), none of which may be more than eight
// steps ahead of the slowest. Without that bound a worker that the system stops for a moment comes back with a gradient of long ago.
//   paceline run --servers 1 --workers 3 -- build/bin/example_own_loop_server
#include <torch/torch.h>

#include <cstdio>

#include "paceline/paceline.h"

int train() {
  paceline::ServerOptions options;
  options.ps.rule = "dc_asgd", options.ps.consistency = "ssp", options.ps.bound = 8;
  options.optim.name = "sgd", options.optim.momentum = 0;

  torch::manual_seed(1);  // server 0's weights count
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  if (paceline::serve(*net, options)) return 0;  // this process is a server: it served until all workers had left
  paceline::ServerClient server(*net, options);

  torch::manual_seed(2 + static_cast<std::uint64_t>(server.worker()));  // every worker sees other samples
  torch::Tensor loss;
  for (int step = 0; step < 600; ++step) {
    const torch::Tensor x = torch::rand({64, 2}) * 2 - 1, y = (3 * x.select(1, 0)).sin() * x.select(1, 1);
    net->zero_grad();
    loss = (net->forward(x).squeeze(1) - y).square().mean();
    loss.backward();
    server.step(0.1);  // pushes the gradient, pulls what the server has now
  }
  if (server.worker() == 0) std::printf("loss %.4f after 600 steps of each worker\n", loss.item<double>());
  return loss.item<double>() < 0.1 ? 0 : 1;
}

int main() { return paceline::run_program(train); }

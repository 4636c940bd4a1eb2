// A loop of one's own on several workers: the parameters become those of one worker with the whole batch.
#include <paceline/paceline.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

namespace {

torch::Tensor loss_of(torch::nn::LinearImpl& net, const at::Tensor& x) { return (net.forward(x) - x.sum(1, true)).square().mean(); }

void train(torch::nn::LinearImpl& net, const at::Tensor& x) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    loss_of(net, x).backward();
    optimizer.step();
  }
}

int run() {
  const auto comm = paceline::comm::connect();
  torch::manual_seed(1);
  torch::nn::Linear net(4, 1), alone(4, 1);
  {
    const torch::NoGradGuard frozen;
    alone->weight.copy_(net->weight), alone->bias.copy_(net->bias);
  }
  const at::Tensor batch = torch::randn({8 * comm->size(), 4});
  train(*alone, batch);

  paceline::DataParallel parallel(*net, *comm);
  train(*net, batch.narrow(0, 8 * comm->rank(), 8));
  const double difference = (net->weight - alone->weight).abs().max().item<double>();
  std::printf("rank %d of %d: %s\n", comm->rank(), comm->size(), difference < 1e-6 ? "equal" : "different");
  return difference < 1e-6 ? 0 : 1;
}

}  // namespace

int main() { return paceline::run_program(run); }

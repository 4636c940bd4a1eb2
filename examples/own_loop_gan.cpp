// A GAN in a loop of one's own on many workers: two modules, two optimizers, synchronised batch norms.
//   paceline run -np 4 -- build/bin/example_own_loop_gan [STEPS [FILE]]      (or mpirun, torchrun; or alone)
//
// The generator learns eight points on a circle. It trains to the same parameters on 1, 2 and 4 workers: noise comes in four streams, of
// which a worker has its share, norms see the samples of all workers, and everything is in double precision.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <charconv>
#include <cstdio>

#include "paceline/base/error.h"
#include "paceline/paceline.h"

constexpr int kStreams = 4, kEach = 32, kNoise = 4;  // samples of each stream in a batch; numbers of noise for a sample
const auto kNumbers = torch::kDouble;

torch::nn::Sequential make_generator() {
  return torch::nn::Sequential(torch::nn::Linear(kNoise, 64), torch::nn::BatchNorm1d(64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                               torch::nn::BatchNorm1d(64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
}
torch::nn::Sequential make_critic() {
  return torch::nn::Sequential(torch::nn::Linear(2, 64), torch::nn::LeakyReLU(), torch::nn::Linear(64, 64), torch::nn::LeakyReLU(),
                               torch::nn::Linear(64, 1));
}

/// This worker's streams of noise: seeded by what makes it different from the others.
std::vector<at::Generator> streams_of(const paceline::comm::Communicator& comm) {
  if (kStreams % comm.size() != 0) throw paceline::ConfigError("this example shares four streams of noise; start 1, 2 or 4 workers");
  std::vector<at::Generator> streams;
  for (int i = 0; i < kStreams / comm.size(); ++i)
    streams.push_back(at::make_generator<at::CPUGeneratorImpl>(1 + comm.rank() * (kStreams / comm.size()) + i));
  return streams;
}

torch::Tensor normal(std::vector<at::Generator>& streams, std::int64_t width) {
  std::vector<torch::Tensor> parts;
  for (at::Generator& stream : streams) parts.push_back(torch::randn({kEach, width}, stream, kNumbers));
  return torch::cat(parts);
}

/// Points near one of eight on a circle.
torch::Tensor real_points(std::vector<at::Generator>& streams) {
  const torch::Tensor drawn = normal(streams, 3), angle = (drawn.select(1, 2) * 100).floor().remainder(8) * (M_PI / 4);
  return torch::stack({angle.cos(), angle.sin()}, 1) * 2 + drawn.narrow(1, 0, 2) * 0.02;
}

torch::Tensor judged(const torch::Tensor& opinion, double as) {
  return torch::nn::functional::binary_cross_entropy_with_logits(opinion, torch::full_like(opinion, as));
}

int train(int steps, const std::string& file) {
  const auto comm = paceline::comm::connect();
  auto streams = streams_of(*comm);
  torch::manual_seed(1);  // the weights; worker 0's count
  auto generator = make_generator(), critic = make_critic();
  generator->to(kNumbers), critic->to(kNumbers);
  paceline::DataParallel generator_parallel(*generator, *comm, {.synchronise_norms = true}), critic_parallel(*critic, *comm);
  torch::optim::Adam generator_optimizer(generator->parameters(), torch::optim::AdamOptions(1e-3).betas({0.5, 0.999}));
  torch::optim::Adam critic_optimizer(critic->parameters(), torch::optim::AdamOptions(1e-3).betas({0.5, 0.999}));

  for (int step = 1; step <= steps; ++step) {
    const torch::Tensor fake = generator->forward(normal(streams, kNoise));
    critic_optimizer.zero_grad();
    const torch::Tensor critic_loss = judged(critic->forward(real_points(streams)), 1) + judged(critic->forward(fake.detach()), 0);
    critic_loss.backward();
    critic_optimizer.step();

    generator_optimizer.zero_grad();
    const torch::Tensor generator_loss = judged(critic->forward(fake), 1);
    {
      const paceline::DataParallel::Accumulate unsent(critic_parallel);  // nobody needs the critic's gradients of this pass
      generator_loss.backward();
    }
    generator_optimizer.step();

    if (step % 100 == 0 || step == steps) {
      const double losses[] = {critic_parallel.sum(critic_loss.item<double>()), generator_parallel.sum(generator_loss.item<double>())};
      if (comm->rank() == 0)
        std::printf("step %d: critic %.9f, generator %.9f\n", step, losses[0] / comm->size(), losses[1] / comm->size());
    }
  }
  if (comm->rank() != 0) return 0;

  generator->eval();  // from here on alone: norms use what they have learned of all workers' samples
  const torch::NoGradGuard no_grad;
  const torch::Tensor points = generator->forward(torch::randn({512, kNoise}, at::make_generator<at::CPUGeneratorImpl>(9), kNumbers));
  const double near = (points.norm(2, 1) - 2).abs().lt(0.25).to(kNumbers).mean().item<double>();
  double norm = 0;
  for (const auto& module : {generator, critic})
    for (const torch::Tensor& parameter : module->parameters()) norm += parameter.square().sum().item<double>();
  std::printf("%.0f%% of the points lie near the circle; squared norm of the parameters %.9f\n", 100 * near, norm);
  if (!file.empty()) torch::save(generator, file);
  return 0;
}

/// STEPS, the first argument.
int steps_of(int argc, char** argv) {
  int steps = 2000;
  if (argc < 2) return steps;
  const std::string word = argv[1];
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), steps);
  if (error != std::errc() || end != word.data() + word.size() || steps < 1)
    throw paceline::ConfigError("STEPS must be a number from 1, not '" + word + "'; usage: " + argv[0] + " [STEPS [FILE]]");
  return steps;
}

int main(int argc, char** argv) {
  return paceline::run_program([&] { return train(steps_of(argc, argv), argc > 2 ? argv[2] : ""); });
}

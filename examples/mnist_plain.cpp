// A plain LibTorch training program, as its users write them: one process. examples/mnist_distributed.cpp is the same on many workers.
#include <torch/torch.h>

#include <charconv>
#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};

  Net() {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 16, 5));
    conv2 = register_module("conv2", torch::nn::Conv2d(16, 32, 5));
    fc1 = register_module("fc1", torch::nn::Linear(512, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
};

/// SAMPLES, the second argument: how many of MNIST's 60,000 to train on.
std::size_t samples_of(int argc, char** argv) {
  std::size_t samples = 60000;
  if (argc < 3) return samples;
  const std::string word = argv[2];
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), samples);
  if (error != std::errc() || end != word.data() + word.size() || samples < 1 || samples > 60000)
    throw std::invalid_argument("SAMPLES must be a number from 1 to 60000, not '" + word + "'; usage: " + argv[0] + " [FOLDER [SAMPLES]]");
  return samples;
}

int train(int argc, char** argv) {
  const std::string root = argc > 1 ? argv[1] : "mnist";  // the four files of MNIST, unpacked
  const std::size_t size = samples_of(argc, argv);
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  auto set =
      torch::data::datasets::MNIST(root).map(torch::data::transforms::Normalize<>(0.1307, 0.3081)).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(set), torch::data::samplers::RandomSampler(size), 64);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    double loss_sum = 0, right = 0, samples = 0;
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::Tensor output = net->forward(batch.data);
      torch::Tensor loss = torch::nn::functional::cross_entropy(output, batch.target);
      loss.backward();
      optimizer.step();
      const auto count = static_cast<double>(batch.target.size(0));
      loss_sum += loss.item<double>() * count, samples += count;
      right += output.argmax(1).eq(batch.target).sum().item<double>();
    }
    std::printf("epoch %d: loss %.4f, accuracy %.2f%%, %.0f samples\n", epoch, loss_sum / samples, 100 * right / samples, samples);
  }
  return 0;
}

int main(int argc, char** argv) {
  try {
    return train(argc, argv);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

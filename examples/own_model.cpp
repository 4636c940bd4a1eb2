// A module, a loss and a dataset of one's own, trained with everything that a recipe can say: strategies, compressors, optimizers,
// parameter servers. A recurrent network learns to write the text of a file, character by character, or a text that is made up here.
//
//   example_own_model                                                     alone
//   example_own_model --workers 4                                         four threads
//   paceline run -np 4 -- example_own_model data.root=shakespeare.txt     four processes; mpirun and torchrun do as well
//   example_own_model parallel.pipeline=3 train.micro_batches=4           three threads, each with one of the module's blocks
//   paceline run --servers 1 --workers 4 -- example_own_model strategy.name=asgd optim.rate=0.2
//   example_own_model --help
#include <torch/data.h>
#include <torch/nn.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "paceline/program.h"

namespace {

namespace F = torch::nn::functional;
using paceline::train::Recipe;
using paceline::train::Workload;

struct WriterImpl : torch::nn::Module {
  WriterImpl(std::int64_t characters, std::int64_t width) {
    embedding = register_module("embedding", torch::nn::Embedding(characters, width));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true)));
    head = register_module("head", torch::nn::Linear(width, characters));
  }
  /// In the order in which they are computed: what a pipeline is cut between.
  std::vector<paceline::nn::ModuleModel::Block> blocks() {
    return {{"embedding", [this](const torch::Tensor& tokens) { return embedding(tokens); }},
            {"lstm", [this](const torch::Tensor& letters) { return std::get<0>(lstm(letters)); }},
            {"head", [this](const torch::Tensor& states) { return head(states); }}};
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Writer);

/// Windows of a text as torch::data has them: what is read, and what comes next at every position.
class Windows : public torch::data::datasets::Dataset<Windows> {
 public:
  static constexpr std::int64_t kContext = 24;

  explicit Windows(torch::Tensor tokens) : tokens_(std::move(tokens)) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto begin = static_cast<std::int64_t>(index) * kContext;
    return {tokens_.narrow(0, begin, kContext), tokens_.narrow(0, begin + 1, kContext)};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>((tokens_.numel() - 1) / kContext); }

 private:
  torch::Tensor tokens_;
};

std::string made_up_text() {
  const char* who[] = {"the ring", "a tree", "the server", "a worker"};
  const char* does[] = {"adds", "sends", "keeps", "waits for"};
  const char* what[] = {"its gradient", "the mean", "a bucket", "every rank"};
  std::string text;
  for (unsigned i = 0, chance = 1; i < 1200; ++i) {
    chance = chance * 1664525u + 1013904223u;
    text += std::string(who[chance >> 30]) + " " + does[chance >> 28 & 3] + " " + what[chance >> 26 & 3] + ".\n";
  }
  return text;
}

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw paceline::DataError(file, "cannot be read; give data.root a file of text");
  return {std::istreambuf_iterator<char>(in), {}};
}

Workload workload(const Recipe& recipe) {
  const std::string text = recipe.data.root.empty() ? made_up_text() : read_text(recipe.data.root);
  std::string characters = text;
  std::ranges::sort(characters);
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  std::vector<std::int64_t> tokens;
  for (const char character : text) tokens.push_back(static_cast<std::int64_t>(characters.find(character)));
  const torch::Tensor all = torch::tensor(tokens);
  const std::int64_t cut = all.numel() * 9 / 10, vocabulary = std::ssize(characters);
  if (cut <= Windows::kContext * recipe.data.batch) throw paceline::ConfigError("the text is too short for data.batch; take a longer one");

  const auto loss = [](const torch::Tensor& logits, const torch::Tensor& next) {
    return F::cross_entropy(logits.flatten(0, 1), next.flatten());
  };
  const auto accuracy = [](const torch::Tensor& logits, const torch::Tensor& next) {
    return logits.argmax(-1).eq(next).to(torch::kFloat).mean();
  };
  const auto bits = [loss](const torch::Tensor& logits, const torch::Tensor& next) { return loss(logits, next) / std::log(2.0); };
  return {.name = "writer",
          .model = paceline::nn::models_of([vocabulary] { return Writer(vocabulary, 48); }),
          .loss = std::make_shared<paceline::nn::FunctionLoss>(
              loss, std::vector<paceline::nn::FunctionLoss::Metric>{{"accuracy", accuracy}, {"bits", bits}}),
          .training = paceline::train::dataset_of(Windows(all.narrow(0, 0, cut)), {.name = "text"}),
          .test = paceline::train::dataset_of(Windows(all.narrow(0, cut, all.numel() - cut)), {.name = "text"})};
}

}  // namespace

int main(int argc, char** argv) {
  Recipe defaults;  // a recipe file, and section.key=value on the command line, say it better
  defaults.data.batch = 32;
  defaults.optim.name = "adam", defaults.optim.rate = 0.01, defaults.optim.clip_norm = 1;
  defaults.train.epochs = 2;
  return paceline::program::train_program(argc, argv, defaults, workload);
}

// What belongs to a user's module and is not trained: frozen parameters, counters, constants of other types. Workers begin with worker 0's,
// and checkpoints and weights have them.
#include <torch/data.h>
#include <torch/nn.h>

#include "paceline/train/torch_dataset.h"
#include "paceline/train/weights.h"
#include "paceline/train/workers.h"
#include "paceline/train/workload.h"
#include "tests/train/support.h"

namespace paceline::train {
namespace {

/// Behind a projection that is drawn and frozen.
struct ProjectedImpl : torch::nn::Module {
  ProjectedImpl() {
    projection = register_parameter("projection", torch::randn({4, 8}), /*requires_grad=*/false);
    last = register_module("last", torch::nn::Linear(8, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));                // never called; its counter is a buffer all the same
    scale = register_buffer("scale", torch::full({1}, 0.1, torch::kDouble));  // of another type than the parameters
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(x.matmul(projection) * scale.to(x.dtype())); }
  torch::Tensor projection, scale;
  torch::nn::Linear last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Projected);

class Waves : public torch::data::datasets::Dataset<Waves> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor x = torch::sin(torch::arange(4) * 1.7 + static_cast<double>(index) * 0.61);
    return {x, torch::stack({x.sum(), x[0] * x[1]})};
  }
  torch::optional<std::size_t> size() const override { return 64; }
};

Workload projected() {
  Workload workload;
  workload.name = "projected";
  workload.model = nn::models_of([] { return Projected(); });
  workload.loss = std::make_shared<nn::FunctionLoss>(
      [](const torch::Tensor& output, const torch::Tensor& targets) { return torch::nn::functional::mse_loss(output, targets); });
  workload.training = workload.test = dataset_of(Waves(), {.name = "waves"});
  return workload;
}

observe::RunEnded train_projected(const std::filesystem::path& folder, int workers, const std::string& strategy = "auto",
                                  const std::string& weights = {}, std::int64_t seed = 1) {
  Recipe recipe;
  recipe.data.batch = 16, recipe.optim.rate = 0.05, recipe.train.epochs = 2, recipe.train.device = "cpu", recipe.train.seed = seed;
  recipe.schedule.name = "constant", recipe.parallel.workers = workers, recipe.strategy.name = strategy;
  recipe.model.weights = weights;
  if (!weights.empty()) recipe.optim.rate = 1e-9;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  observe::Bus bus;
  return Workers(recipe, comm::World{}, {.bus = bus, .clock = clock, .stop = stop, .workload = projected()}).run(folder);
}

TEST(Untrained, WorkersBeginWithWorkerZeros) {
  const Folder alone, together, served;
  const observe::RunEnded one = train_projected(alone.path(), 1), two = train_projected(together.path(), 2);
  EXPECT_NEAR(two.test_loss, one.test_loss, 1e-5);
  EXPECT_NEAR(train_projected(served.path(), 2, "ssgd").test_loss, one.test_loss, 1e-5);
}

TEST(Untrained, IsInCheckpointsAndWeights) {
  const Folder first, again;
  const observe::RunEnded trained = train_projected(first.path(), 1);
  const auto [file, checkpoint] = newest_good_checkpoint(first.path());
  std::vector<std::string> names;
  for (const NamedTensor& item : checkpoint.tensors) names.push_back(item.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"model.projection", "model.scale", "model.norm.num_batches_tracked"}));
  EXPECT_EQ(step::find_saved(checkpoint.tensors, "model.scale").scalar_type(), at::kDouble);

  const auto exported = again.path() / "weights.safetensors";
  export_weights(checkpoint, exported);
  for (const std::string& source : {file.string(), exported.string(), first.path().string()}) {
    const Folder other;
    EXPECT_NEAR(train_projected(other.path(), 1, "auto", source, /*seed=*/7).test_loss, trained.test_loss, 1e-4) << source;
  }
}

}  // namespace
}  // namespace paceline::train

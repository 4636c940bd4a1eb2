#include "paceline/train/trained_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/data/image_input.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/loss.h"
#include "paceline/train/feed.h"

namespace paceline::train {
namespace {

/// The recipe for one worker that does not train.
void make_alone(Recipe& recipe) {
  recipe.parallel = {}, recipe.parallel.workers = 1;
  recipe.strategy = {}, recipe.comm = {};
  recipe.train.recompute = "none", recipe.train.micro_batches = 1;
  recipe.data.augment = false;
}

void require_built_in(const Checkpoint& checkpoint, const std::filesystem::path& file) {
  const auto is_it = [&](const auto& row) { return row.key == checkpoint.network; };
  if (std::ranges::any_of(graph::networks(), is_it)) return;
  throw ConfigError(fmt::format(
      "{} belongs to '{}', a model of another program; use that program, or export the weights with paceline checkpoint convert",
      file.string(), checkpoint.network));
}

}  // namespace

TrainedRun::TrainedRun(const std::filesystem::path& path, const std::function<void(Config&)>& settings) {
  auto [file, checkpoint] = newest_good_checkpoint(path);
  file_ = std::move(file), position_ = checkpoint.position, class_names_ = checkpoint.class_names;
  require_built_in(checkpoint, file_);
  Config config = recipe_.config();
  config.load_text(checkpoint.recipe, file_.string());
  settings(config);
  make_alone(recipe_);
  configure_libtorch(recipe_, static_cast<int>(recipe_.train.threads));
  datasets_ = make_datasets(recipe_);
  check_data(checkpoint);
  alone_ = std::move(comm::local_group(1).front());
  mesh_ = std::make_unique<comm::Mesh>(*alone_);
  model_ = make_model(recipe_, {}, datasets_.test->info(), *mesh_, file_.string(), clock_).model;
}

// Labels must have the same meaning as in training.
void TrainedRun::check_data(const Checkpoint& checkpoint) const {
  const auto& names = datasets_.test->info().class_names;
  if (!names.empty() && !class_names_.empty() && names != class_names_) {
    const auto [was, is] = std::ranges::mismatch(class_names_, names);
    const auto name = [](const auto& at, const auto& list) { return at == list.end() ? std::string("none") : "'" + *at + "'"; };
    throw ConfigError(fmt::format(
        "{} was trained with other classes than '{}' has: class {} was {} and is {} here; use data with the "
        "same {} classes",
        file_.string(), recipe_.data.name, was - class_names_.begin(), name(was, class_names_), name(is, names), class_names_.size()));
  }
  const std::uint32_t vocabulary = crc32c(std::as_bytes(std::span(datasets_.training->vocabulary())));
  if (const std::uint32_t was = checkpoint.position.vocabulary; was != 0 && vocabulary != 0 && was != vocabulary)
    throw ConfigError(
        fmt::format("{} was trained on a text with other characters than data.root={} has, so its tokens would mean something else; use a "
                    "text with the same characters",
                    file_.string(), recipe_.data.root));
}

std::string TrainedRun::class_name(std::int64_t label) const {
  const auto& names = class_names_.empty() ? datasets_.test->info().class_names : class_names_;
  return label < std::ssize(names) ? names[static_cast<std::size_t>(label)] : std::to_string(label);
}

Evaluation TrainedRun::evaluate(data::Split split, const std::function<bool(std::int64_t done)>& told) {
  // Read like the test data of a run, whichever split it is.
  const auto feed =
      make_feed(dataset(split), loader_options(recipe_, data::Split::test, *alone_, recipe_.data.batch), recipe_.data, *model_);
  const nn::SoftmaxLoss loss;
  nn::Pass pass;
  pass.training = false;
  at::Tensor sums = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(model_->device()));
  Evaluation found;
  feed->start(0, recipe_.data.batch);
  while (const auto batch = feed->next()) {
    sums.add_(loss.evaluate(model_->run(batch->inputs, pass, nullptr), batch->targets));
    found.samples += batch->inputs.size(0), found.targets += batch->targets.numel();
    if (!told(found.samples)) break;
  }
  const at::Tensor host = sums.cpu();
  found.loss = host[0].item<double>() / static_cast<double>(found.targets);
  found.accuracy = host[1].item<double>() / static_cast<double>(found.targets);
  return found;
}

void TrainedRun::predict(const std::vector<std::string>& files, std::int64_t top,
                         const std::function<void(const std::string& file, const Ranking& ranking)>& told) {
  const data::Info& info = datasets_.test->info();
  std::vector<std::int64_t> shape = info.input;
  shape.insert(shape.begin(), 1);
  nn::Pass pass;
  pass.training = false;
  const std::int64_t batch = std::max<std::int64_t>(recipe_.data.batch, 1);
  for (std::int64_t begin = 0; begin < std::ssize(files); begin += batch) {
    shape[0] = std::min(batch, std::ssize(files) - begin);
    const at::Tensor inputs = at::empty(shape, at::kFloat);
    for (std::int64_t i = 0; i < shape[0]; ++i)
      data::read_as_input(files[static_cast<std::size_t>(begin + i)], info, inputs[i].data_ptr<float>());
    const at::Tensor logits = model_->run(inputs.to(model_->device()), pass, nullptr).narrow(1, 0, info.classes);
    const auto [probabilities, labels] = at::softmax(logits.to(at::kCPU, at::kDouble), 1).topk(std::min(top, info.classes), 1);
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      Ranking ranking;
      for (std::int64_t k = 0; k < labels.size(1); ++k)
        ranking.classes.push_back({labels[i][k].item<std::int64_t>(), probabilities[i][k].item<double>()});
      told(files[static_cast<std::size_t>(begin + i)], ranking);
    }
  }
}

}  // namespace paceline::train

#include "paceline/data_parallel/data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/data_parallel/buckets.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/nn/graph_module.h"

namespace paceline {

using data_parallel::Bucket;

namespace {

/// A GraphModule computes with the memory of its own arena, whatever its parameters are pointed to.
torch::nn::Module& without_graphs(torch::nn::Module& module) {
  const auto is_graph = [](const torch::nn::Module& part) { return dynamic_cast<const nn::GraphModule*>(&part) != nullptr; };
  if (is_graph(module) || std::ranges::any_of(module.modules(/*include_self=*/false), [&](const auto& part) { return is_graph(*part); }))
    throw ConfigError(
        "DataParallel takes modules of LibTorch and not a GraphModule, whose parameters lie in an arena already; train its network with a "
        "recipe and strategy.name=allreduce");
  return module;
}

/// Refuses modules that differ between the workers, whose values would otherwise be taken for each other's. Collective.
torch::nn::Module& same_on_all(torch::nn::Module& module, comm::Communicator& comm) {
  if (comm.size() == 1) return module;
  std::string text;
  const auto describe = [&](const std::string& name, const torch::Tensor& tensor) {
    text += fmt::format("{} {} {} {}\n", name, fmt::join(tensor.sizes(), "x"), c10::toString(tensor.scalar_type()), tensor.requires_grad());
  };
  for (const auto& item : module.named_parameters()) describe(item.key(), item.value());
  for (const auto& item : module.named_buffers()) describe(item.key(), item.value());
  std::vector<double> checksums(static_cast<std::size_t>(comm.size()));
  checksums[static_cast<std::size_t>(comm.rank())] = crc32c(std::as_bytes(std::span(text)));
  comm.run(comm::allreduce(checksums));
  const auto other = std::ranges::find_if(checksums, [&](double checksum) { return checksum != checksums.front(); });
  if (other != checksums.end())
    throw ConfigError(
        fmt::format("DataParallel: worker {}'s module has other parameters or buffers than worker 0's (names, shapes, types, or "
                    "what is frozen); build the same on all workers",
                    other - checksums.begin()));
  return module;
}

}  // namespace

struct DataParallel::State {
  State(torch::nn::Module& adopted, comm::Communicator& workers, const Options& options)
      : module(without_graphs(adopted)),
        own(workers.size() > 1 ? workers.split(0, workers.rank()) : nullptr),
        comm(own ? *own : workers),
        arena(tensor::adopt(same_on_all(adopted, comm), data_parallel::allocate_from(comm),
                            [this](std::size_t index) {
                              if (comm.size() > 1) gradient_done(index);
                            })),
        lane(arena, comm, clock, [this](const Bucket& bucket) {
          comm.run(comm::allreduce(data_parallel::buffer_of(arena.gradients(), bucket.begin, bucket.end), {.op = comm::ReduceOp::mean}));
          return Nanoseconds(0);
        }) {
    // On a GPU the lane's thread would not know the stream of the pass.
    lane.configure(static_cast<std::int64_t>(options.bucket_mb * (1 << 20)), options.overlap && arena.gradients().is_cpu());
    const auto named = adopted.named_parameters();
    for (const tensor::Entry& entry : arena.entries()) parameters.push_back(named[entry.name]);
  }

  /// A gradient was added to parameter `index`, in the arena.
  void gradient_done(std::size_t index) {
    refuse_after_failure();
    if (accumulating) return;
    if (!in_pass) {
      in_pass = true;
      const auto alive = std::make_shared<char>();
      pass = alive;
      torch::autograd::Engine::get_default_engine().queue_callback([this, alive] { finish(); });
    }
    lane.ready(index, index + 1);
  }

  /// Autograd drops its callbacks where a pass throws: finish() was not called, and is not to be made up for. Some buckets have left, of
  /// which the other workers, who may have gone on, have added what they got.
  void refuse_after_failure() const {
    if (in_pass && pass.expired())
      throw Error(
          "DataParallel: the backward pass before this threw an error when some of its gradients had already left for the other workers; "
          "start all workers again, from their last checkpoint");
  }

  /// The end of a backward pass.
  void finish() {
    in_pass = false;
    tensor::restore_gradients(arena, parameters);  // of those that the pass did not use: zeros, or what was accumulated before
    ++passes;
    lane.finish();
  }

  /// `tensor` becomes worker 0's, whatever its type: as bytes. Collective.
  void broadcast(const torch::Tensor& tensor) {
    if (comm.size() == 1 || tensor.numel() == 0) return;
    const torch::Tensor flat = tensor.detach().contiguous().view(-1), bytes = flat.view(torch::kByte);
    comm.run(comm::broadcast(data_parallel::buffer_of(bytes, 0, bytes.numel())));
    tensor.copy_(flat.view(tensor.sizes()));
  }

  torch::nn::Module& module;
  std::unique_ptr<comm::Communicator> own;  // of this module alone: its buckets leave while those of another do, and while the user talks
  comm::Communicator& comm;
  tensor::Arena arena;
  SteadyClock clock;
  data_parallel::BucketLane lane;
  std::vector<torch::Tensor> parameters;  // by entry of the arena
  std::int64_t passes = 0;                // that the other workers took part in
  bool in_pass = false, accumulating = false;
  std::weak_ptr<char> pass;  // what autograd holds of ours while it is in it
};

DataParallel::DataParallel(torch::nn::Module& module, comm::Communicator& comm, const Options& options)
    : state_(std::make_unique<State>(module, comm, options)) {
  torch::NoGradGuard no_grad;
  state_->broadcast(state_->arena.parameters());
  for (const torch::Tensor& parameter : module.parameters())
    if (!parameter.requires_grad()) state_->broadcast(parameter);
  synchronise_buffers();
}

DataParallel::~DataParallel() = default;

DataParallel::Accumulate::Accumulate(DataParallel& parallel) : parallel_(parallel) { parallel_.state_->accumulating = true; }
DataParallel::Accumulate::~Accumulate() { parallel_.state_->accumulating = false; }

tensor::Arena& DataParallel::arena() { return state_->arena; }

void DataParallel::backward(const torch::Tensor& loss) {
  state_->refuse_after_failure();
  state_->arena.take_back();
  const std::int64_t before = state_->passes;
  if (loss.defined() && loss.requires_grad()) loss.backward();
  if (state_->passes == before && !state_->accumulating && state_->comm.size() > 1) state_->finish();
}

double DataParallel::weight(std::int64_t samples) {
  if (samples < 0) throw ConfigError(fmt::format("DataParallel: a share of {} samples; give 0 or more", samples));
  const double all = sum(static_cast<double>(samples));
  return all > 0 ? static_cast<double>(samples) * state_->comm.size() / all : 0;
}

void DataParallel::backward(const torch::Tensor& loss, std::int64_t samples) {
  const double factor = weight(samples);
  backward(loss.defined() ? loss * factor : loss);
}

void DataParallel::synchronise_buffers() {
  state_->refuse_after_failure();
  torch::NoGradGuard no_grad;
  for (const torch::Tensor& buffer : state_->module.buffers()) state_->broadcast(buffer);
}

double DataParallel::sum(double value) {
  state_->refuse_after_failure();
  std::vector<double> all = {value};
  state_->comm.run(comm::allreduce(all));
  return all[0];
}

ShardedSampler::ShardedSampler(std::size_t size, const comm::Communicator& comm, std::uint64_t seed)
    : size_(size), rank_(static_cast<std::uint64_t>(comm.rank())), workers_(static_cast<std::uint64_t>(comm.size())), seed_(seed) {
  if (size == 0) throw ConfigError("a sampler of no samples; is the dataset empty?");
  draw();
}

void ShardedSampler::draw() {
  std::vector<std::size_t> order(size_);
  std::iota(order.begin(), order.end(), 0);
  RandomStream(seed_, Purpose::shuffle, 0, epoch_).shuffle(std::span(order));
  const std::size_t each = (size_ + workers_ - 1) / workers_;
  share_.clear();
  for (std::size_t i = 0; i < each; ++i) share_.push_back(order[(i * workers_ + rank_) % size_]);
  next_ = 0;
}

void ShardedSampler::reset(Optional<std::size_t> new_size) {
  size_ = new_size.value_or(size_);
  ++epoch_;
  draw();
}

Optional<std::vector<std::size_t>> ShardedSampler::next(std::size_t batch_size) {
  const std::size_t count = std::min(batch_size, share_.size() - next_);
  if (count == 0) return {};
  const auto begin = share_.begin() + static_cast<std::ptrdiff_t>(next_);
  next_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void ShardedSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::vector<std::int64_t> values = {static_cast<std::int64_t>(epoch_), static_cast<std::int64_t>(next_),
                                            static_cast<std::int64_t>(size_), static_cast<std::int64_t>(workers_),
                                            static_cast<std::int64_t>(seed_)};
  archive.write("position", torch::tensor(values, torch::kLong), true);
}

void ShardedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor position = torch::empty({0}, torch::kLong);
  archive.read("position", position, true);
  const auto value = [&](std::int64_t index) { return static_cast<std::uint64_t>(position[index].item<std::int64_t>()); };
  if (position.numel() != 5 || value(2) != size_ || value(3) != workers_ || value(4) != seed_)
    throw ConfigError(
        fmt::format("the sampler's state is not of {} samples among {} workers with seed {}: its place would be another; begin "
                    "an epoch instead of loading it",
                    size_, workers_, seed_));
  epoch_ = value(0);
  draw();
  next_ = std::min<std::size_t>(value(1), share_.size());
}

}  // namespace paceline

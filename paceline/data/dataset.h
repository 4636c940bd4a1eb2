// Datasets: immutable, read by many threads at once, without LibTorch.
//
// A dataset knows how to write one sample into one slot of a batch; order, sharding and prefetching are in loader.h.
// Random numbers come from a stream that is named by the sample, so a sample is augmented in the same way on one worker or on
// many, on the CPU or on the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/aligned.h"
#include "paceline/base/config.h"
#include "paceline/base/random.h"
#include "paceline/base/registry.h"
#include "paceline/data/augment_plan.h"

namespace paceline::data {

class Tokenizer;

/// [data] of a recipe.
struct DataConfig {
  std::string name = "shapes";
  std::string root;         // folder (or file) of the dataset
  std::int64_t batch = 64;  // the global batch
  bool augment = false;
  std::int64_t crop = 4;           // augment: pad by this many pixels, then crop at random; folders: see image_folder.cpp
  bool flip = true;                // augment: mirror every other image
  std::int64_t cutout = 0;         // augment: side of a square that is blanked (to 0 after normalisation); 0: none
  bool normalise = true;           // subtract the dataset's mean, divide by its deviation
  std::int64_t threads = 1;        // background threads that prepare batches; 0: prepare in the training thread
  std::int64_t prefetch = 4;       // batches prepared ahead
  std::int64_t train_samples = 0;  // 0: all; otherwise only the first (shapes, random: how many to generate)
  std::int64_t test_samples = 0;
  std::int64_t held_out = 0;                      // the last training samples: not trained on, and used in place of the test set
  bool drop_last = true;                          // leave out the ragged last batch of a training epoch
  std::string uneven = "refuse";                  // refuse, weight or pad a batch that the workers cannot share evenly
  std::string residency = "auto";                 // host, device, auto: keep the whole set on the GPU if it fits
  std::int64_t image_size = 224;                  // image folders: side of the image that the network gets
  std::vector<std::int64_t> shape = {3, 32, 32};  // shapes, random: of one sample
  std::int64_t classes = 10;                      // shapes, random
  std::int64_t context = 128;                     // text, tokens: characters or tokens per sample
  std::int64_t vocabulary = 0;                    // tokens: the size of the vocabulary; 0: what the files say
  std::int64_t token_bits = 16;                   // tokens: bits per token in files without a header

  void describe(Section& section);
};

enum class Split { train, test };

struct Info {
  std::string key;
  std::vector<std::int64_t> input;            // shape of a sample without the batch: {3, 32, 32}, or {context} for text
  std::int64_t classes = 0;                   // or the size of the vocabulary
  bool tokens = false;                        // inputs are tokens
  std::vector<float> mean, deviation;         // per channel, of pixels in 0..1; 0 and 1 if data.normalise is off; empty for text
  std::vector<std::int64_t> target = {};      // shape of a sample's targets; empty: a single target
  bool real_targets = false;                  // targets are numbers, not labels
  std::vector<std::string> class_names = {};  // by label; empty if the classes have no names
};

/// A batch in host memory. Images: `inputs` holds count × C×H×W floats; text: `tokens` holds count × context. `targets` has one label per
/// sample, or one per position for text; real targets are in `values`. Buffers are kept when a Batch is reused, so that a warm loader
/// allocates nothing.
struct Batch {
  std::int64_t count = 0;
  std::int64_t global_count = 0;      // samples in all workers' shares together
  std::int64_t epoch = 0, index = 0;  // which batch of which epoch
  AlignedVector<float> inputs;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
  AlignedVector<float> values;
};

/// All pixels of a set in memory, for datasets that can be kept on the GPU: count × C × H × W bytes.
struct Pixels {
  std::span<const std::uint8_t> bytes;
  std::span<const std::int64_t> labels;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const Info& info() const = 0;
  virtual std::int64_t size() const = 0;
  /// Makes room in `batch` for `count` samples.
  virtual void prepare(Batch& batch, std::int64_t count) const = 0;
  /// Writes sample `index` into `slot`. `random` is the stream of this sample in this epoch; null: no augmentation.
  virtual void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const = 0;

  /// For sets in memory: the pixels, and how sample `index` would be augmented. nullopt: read() is the only way.
  virtual std::optional<Pixels> pixels() const { return std::nullopt; }
  virtual AugmentPlan plan(std::int64_t index, RandomStream* random) const;
  /// For text: the byte that each token stands for, ascending. Empty for images.
  virtual std::string_view vocabulary() const { return {}; }
  /// For text and tokens: the tokenizer. Null for other data, or if it is unknown how the tokens were made.
  virtual std::unique_ptr<const Tokenizer> tokenizer() const;
};

using MakeDataset = std::unique_ptr<Dataset> (*)(const DataConfig&, Split, std::uint64_t seed);
/// A row of the registry.
struct DatasetKind {
  MakeDataset make = nullptr;
  bool is_noise = false;   // random values of whatever shape, classes and number [data] asks for
  float middle_share = 1;  // of an image's shorter side: the square in its middle that a network sees when it is not trained
};
std::span<const Entry<DatasetKind>> datasets();
const DatasetKind& kind_of(const DataConfig& config);
std::unique_ptr<Dataset> make_dataset(const DataConfig& config, Split split, std::uint64_t seed);

}  // namespace paceline::data

#include "paceline/data/dataset.h"

#include "paceline/data/held_out.h"
#include "paceline/data/tokenizer.h"

namespace paceline::data {

void DataConfig::describe(Section& section) {
  std::vector<std::string_view> names;
  for (const auto& entry : datasets()) names.push_back(entry.key);
  // Sizes that an AugmentPlan stores in 16 bits.
  constexpr double kMostPixels = 4096;

  section.field("name", name, "the dataset").one_of(names);
  section.field("root", root, "folder or file of the dataset; empty: its place under $PACELINE_DATA");
  section.field("batch", batch, "global batch: samples per step, over all workers").at_least(1);
  section.field("augment", augment, "change training samples at random");
  section.field("crop", crop, "augment: pad by this many pixels, then crop at random; image_folder: 0 turns the random crop off")
      .at_least(0)
      .at_most(kMostPixels);
  section.field("flip", flip, "augment: mirror images at random, half of them (never digits)");
  section.field("cutout", cutout, "augment: side of a square that is blanked; 0: none").at_least(0).at_most(kMostPixels);
  section.field("normalise", normalise, "subtract the dataset's mean and divide by its standard deviation");
  section.field("threads", threads, "background threads that prepare batches; 0: prepare them in the training thread")
      .at_least(0)
      .at_most(1024);
  section.field("prefetch", prefetch, "batches prepared ahead").at_least(1).at_most(1024);
  section.field("train_samples", train_samples, "use only the first N training samples (shapes, random: generate N); 0: all").at_least(0);
  section.field("test_samples", test_samples, "use only the first N test samples (shapes, random: generate N); 0: all").at_least(0);
  section
      .field("held_out", held_out, "hold out the last N training samples, and evaluate on them instead of the test data, to tune settings")
      .at_least(0);
  section
      .field(
          "uneven", uneven,
          "what to do with a batch that cannot be divided evenly among workers: refuse it, weight the shares, or pad by repeating samples")
      .one_of({"refuse", "weight", "pad"});
  section.field("drop_last", drop_last, "leave out the incomplete last batch of a training epoch; false: use every sample once per epoch");
  section.field("residency", residency, "where the pixels of a dataset in memory are kept").one_of({"host", "device", "auto"});
  section.field("image_size", image_size, "image_folder: side of the images that the network gets, in pixels")
      .at_least(1)
      .at_most(kMostPixels);
  section.field("shape", shape, "shapes, random: channels, height and width of a sample").at_least(1).at_most(kMostPixels);
  section.field("classes", classes, "shapes, random: number of classes").at_least(1);
  section.field("context", context, "text, tokens: characters or tokens per sample").at_least(1);
  section.field("vocabulary", vocabulary, "tokens: size of the vocabulary; 0: from tokens.json or the files' headers").at_least(0);
  section.field("token_bits", token_bits, "tokens: bits per token in files without a header, 16 or 32").at_least(16).at_most(32);
}

std::unique_ptr<const Tokenizer> Dataset::tokenizer() const { return nullptr; }

AugmentPlan Dataset::plan(std::int64_t, RandomStream*) const { throw InternalError("only a dataset with pixels() has plans"); }

const DatasetKind& kind_of(const DataConfig& config) { return find(datasets(), "dataset", config.name).make; }

std::unique_ptr<Dataset> make_dataset(const DataConfig& config, Split split, std::uint64_t seed) {
  const MakeDataset make = kind_of(config).make;
  if (config.held_out == 0) return make(config, split, seed);
  return part_of(make(config, Split::train, seed), config.held_out, split);
}

}  // namespace paceline::data

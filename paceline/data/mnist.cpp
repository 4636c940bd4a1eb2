// mnist: handwritten digits (LeCun, Cortes, Burges), and other sets in the same format (Fashion-MNIST, KMNIST).
#include <fmt/format.h>

#include "paceline/data/dataset_files.h"
#include "paceline/data/idx.h"
#include "paceline/data/image_set.h"
#include "paceline/data/sets.h"

namespace paceline::data {
namespace {

constexpr std::int64_t kSide = 28, kClasses = 10;

/// The file itself, or its compressed form with the ending .gz.
std::filesystem::path find_file(const std::filesystem::path& root, const std::string& name) {
  for (const std::string suffix : {"", ".gz"}) {
    auto file = root / (name + suffix);
    if (is_there(file)) return file;
  }
  throw DataError((root / name).string(), "no such file, neither plain nor .gz; data.root must be the folder with the four MNIST files");
}

}  // namespace

std::unique_ptr<Dataset> make_mnist(const DataConfig& config, Split split, std::uint64_t) {
  const auto root = find_root(config, "mnist", "the folder with train-images-idx3-ubyte[.gz] and the three other MNIST files");
  const std::string part = split == Split::train ? "train" : "t10k";
  const auto image_file = find_file(root, part + "-images-idx3-ubyte"), label_file = find_file(root, part + "-labels-idx1-ubyte");

  Idx digits = read_idx(image_file, 3);
  if (digits.shape[1] != kSide || digits.shape[2] != kSide)
    throw DataError(image_file.string(), 8, fmt::format("images of {}×{}, expected 28×28", digits.shape[1], digits.shape[2]));
  const Idx labels = read_idx(label_file, 1);
  if (labels.shape[0] != digits.shape[0])
    throw DataError(label_file.string(), 4,
                    fmt::format("{} labels, but {} has {} images; the files do not belong together", labels.shape[0], image_file.string(),
                                digits.shape[0]));
  for (std::size_t i = 0; i < labels.bytes.size(); ++i)
    if (labels.bytes[i] >= kClasses)
      throw DataError(label_file.string(), labels.header_bytes() + static_cast<std::int64_t>(i),
                      fmt::format("label {} is out of range, expected 0 to {}", labels.bytes[i], kClasses - 1));

  DataConfig upright = config;
  upright.flip = false;  // a mirrored digit is no longer that digit
  Images images{.bytes = std::move(digits.bytes), .labels = {labels.bytes.begin(), labels.bytes.end()}};
  Info info = image_info(config, {1, kSide, kSide}, kClasses, {0.1307f}, {0.3081f});
  return std::make_unique<ImageSet>(std::move(info), std::move(images), upright, split);
}

}  // namespace paceline::data

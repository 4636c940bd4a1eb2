// image_folder: images in root/train/<class>/ and root/val/<class>/ (or test), as ImageNet is laid out. The classes are the folders of
// train/ in alphabetical order. Images are read and decoded on demand; only their names stay in memory.
//
// Training with augmentation: a box of 8% to 100% of the area and a ratio of 3/4 to 4/3 (Szegedy et al., "Going deeper with convolutions"),
// resized to the network's side, and mirrored half of the time; data.crop=0 switches the random box off. Otherwise: the middle square,
// as if the image were resized to 256/224 of the side and then cropped to the side.
//
// Invariant: samples alternate between the classes, so that the first n of them (data.train_samples) are as even as the folder allows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/files.h"
#include "paceline/data/dataset_files.h"
#include "paceline/data/image_input.h"
#include "paceline/data/sets.h"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sorted_names(const fs::path& folder, bool (*wanted)(const fs::directory_entry&)) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder))
      if (wanted(entry)) names.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& problem) {
    throw DataError(folder.string(), fmt::format("cannot be listed: {}", problem.code().message()));
  }
  std::ranges::sort(names);
  return names;
}

/// Throws for a dangling link, which would otherwise silently drop an image or a class.
const fs::directory_entry& leads_somewhere(const fs::directory_entry& entry) {
  std::error_code ignored;
  if (entry.is_symlink() && !entry.exists(ignored))
    throw DataError(entry.path().string(),
                    fmt::format("links to {}, which does not exist; fix or remove the link", fs::read_symlink(entry.path()).string()));
  return entry;
}

bool is_folder(const fs::directory_entry& entry) { return leads_somewhere(entry).is_directory(); }

bool is_image(const fs::directory_entry& entry) {
  std::string ending = entry.path().extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending != ".jpg" && ending != ".jpeg" && ending != ".png") return false;
  if (leads_somewhere(entry).is_regular_file()) return true;
  throw DataError(entry.path().string(), "is named like an image but is not a file; rename or remove it");
}

bool is_folder_at(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

fs::path split_folder(const fs::path& root, Split split) {
  if (split == Split::train) {
    if (is_folder_at(root / "train")) return root / "train";
    throw DataError(root.string(), "has no folder train; expected train/<class>/*.jpg and val/<class>/*.jpg");
  }
  for (const char* name : {"val", "test"})
    if (is_folder_at(root / name)) return root / name;
  throw DataError(root.string(), "has no folder val or test; expected val/<class>/*.jpg");
}

struct Sample {
  std::string file;  // below the split's folder
  std::int64_t label;
};

std::vector<Sample> list_samples(const fs::path& folder, const std::vector<std::string>& classes) {
  std::vector<std::vector<std::string>> files(classes.size());
  for (const std::string& name : sorted_names(folder, is_folder)) {
    const auto found = std::ranges::lower_bound(classes, name);
    if (found == classes.end() || *found != name)
      throw DataError((folder / name).string(), "is a class that train/ does not have; rename it, or add it there");
    auto& own = files[static_cast<std::size_t>(found - classes.begin())];
    own = sorted_names(folder / name, is_image);
    if (own.empty()) throw DataError((folder / name).string(), "has no images (*.jpg, *.jpeg, *.png); add some, or remove the folder");
  }
  std::vector<Sample> samples;
  for (std::size_t turn = 0, before = 1; before != samples.size(); ++turn) {
    before = samples.size();
    for (std::size_t label = 0; label < classes.size(); ++label)
      if (turn < files[label].size()) samples.push_back({classes[label] + '/' + files[label][turn], static_cast<std::int64_t>(label)});
  }
  if (samples.empty()) throw DataError(folder.string(), "has no classes; expected a folder of images for each class");
  return samples;
}

Box draw_box(ImageSize size, RandomStream& random) {
  const auto width = static_cast<float>(size.width), height = static_cast<float>(size.height);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const float area = width * height * random.uniform(0.08f, 1.0f);
    const float ratio = std::exp(random.uniform(std::log(3.0f / 4.0f), std::log(4.0f / 3.0f)));
    const float box_width = std::sqrt(area * ratio), box_height = std::sqrt(area / ratio);
    if (box_width > width || box_height > height) continue;
    return {random.uniform(0, width - box_width), random.uniform(0, height - box_height), box_width, box_height};
  }
  return middle_box(size, kMiddleShare);
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(Info info, const fs::path& folder, std::vector<Sample> samples, const DataConfig& config)
      : info_(std::move(info)),
        folder_(folder.string() + '/'),
        samples_(std::move(samples)),
        config_(config),
        random_box_(config.crop > 0),
        normalisation_(info_) {
    config_.crop = 0;  // the random box replaces the random shift of small images
  }

  const Info& info() const override { return info_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }

  void prepare(Batch& batch, std::int64_t count) const override {
    batch.count = count;
    batch.inputs.resize(static_cast<std::size_t>(count * sample_floats()));
    batch.targets.resize(static_cast<std::size_t>(count));
  }

  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override {
    const Sample& sample = samples_[index];
    const std::string file = folder_ + sample.file;
    const std::string content = read_file(file);
    const auto bytes = bytes_of(content);
    const ImageSize size = image_size(file, bytes);

    const std::int64_t side = config_.image_size;
    const Box box = random && random_box_ ? draw_box(size, *random) : middle_box(size, kMiddleShare);
    const AugmentPlan plan = draw_plan(config_, index, side, side, random);
    float* out = batch.inputs.data() + slot * sample_floats();
    resize_box(file, bytes, size, box, side, plan.flip, normalisation_, out);
    blank_cutout(plan, 3, side, side, out);
    batch.targets[slot] = sample.label;
  }

 private:
  std::int64_t sample_floats() const { return 3 * config_.image_size * config_.image_size; }

  Info info_;
  std::string folder_;
  std::vector<Sample> samples_;
  DataConfig config_;
  bool random_box_;
  Normalisation normalisation_;
};

}  // namespace

std::unique_ptr<Dataset> make_image_folder(const DataConfig& config, Split split, std::uint64_t) {
  const auto root = find_root(config, "", "the folder with train/<class>/*.jpg and val/<class>/*.jpg");
  if (!is_folder_at(root)) throw DataError(root.string(), "is not a folder; data.root must contain train/<class>/*.jpg");
  const auto classes = sorted_names(split_folder(root, Split::train), is_folder);
  if (classes.empty()) throw DataError((root / "train").string(), "has no classes; expected a folder of images for each class");
  const auto folder = split_folder(root, split);
  auto samples = list_samples(folder, classes);
  samples.resize(static_cast<std::size_t>(samples_to_use(config, split, static_cast<std::int64_t>(samples.size()))));
  // The mean and deviation of ImageNet, which are customary for photographs.
  Info info = image_info(config, {3, config.image_size, config.image_size}, static_cast<std::int64_t>(classes.size()),
                         {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
  info.class_names = classes;
  return std::make_unique<ImageFolder>(std::move(info), folder, std::move(samples), config);
}

}  // namespace paceline::data

#include "paceline/data/cifar.h"

#include <fmt/format.h>

#include "paceline/data/dataset_files.h"
#include "paceline/data/sets.h"

namespace paceline::data {

Images read_cifar(const std::filesystem::path& root, const CifarFiles& files) {
  constexpr std::int64_t kImageBytes = 3 * 32 * 32;
  const std::int64_t label_bytes = files.coarse_classes > 0 ? 2 : 1, record_bytes = label_bytes + kImageBytes;
  Images images;
  images.bytes.reserve(files.names.size() * static_cast<std::size_t>(files.records * kImageBytes));
  for (const std::string& name : files.names) {
    const auto file = root / name;
    const std::string content = read_file_of_size(file, files.records * record_bytes);
    const auto bytes = bytes_of(content);
    const auto check = [&](std::int64_t place, std::int64_t classes, const char* label) {
      if (bytes[place] >= classes)
        throw DataError(file.string(), place, fmt::format("{} {} is out of range, expected 0 to {}", label, bytes[place], classes - 1));
    };
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(bytes.size()); at += record_bytes) {
      const std::int64_t label_at = at + label_bytes - 1;
      if (files.coarse_classes > 0) check(at, files.coarse_classes, "coarse label");
      check(label_at, files.classes, "label");
      images.labels.push_back(bytes[label_at]);
      const auto image = bytes.begin() + label_at + 1;
      images.bytes.insert(images.bytes.end(), image, image + kImageBytes);
    }
  }
  return images;
}

std::unique_ptr<Dataset> make_cifar10(const DataConfig& config, Split split, std::uint64_t) {
  const auto root = find_root(config, "cifar-10", "the folder with data_batch_1.bin … data_batch_5.bin and test_batch.bin");
  CifarFiles files{.names = {"test_batch.bin"}};
  if (split == Split::train)
    files.names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  Info info = image_info(config, {3, 32, 32}, files.classes, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f});
  info.class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  return std::make_unique<ImageSet>(std::move(info), read_cifar(root, files), config, split);
}

std::unique_ptr<Dataset> make_cifar100(const DataConfig& config, Split split, std::uint64_t) {
  const auto root = find_root(config, "cifar-100", "the folder with train.bin and test.bin");
  CifarFiles files{.names = {"test.bin"}, .records = 10'000, .classes = 100, .coarse_classes = 20};
  if (split == Split::train) files.names = {"train.bin"}, files.records = 50'000;
  Info info = image_info(config, {3, 32, 32}, files.classes, {0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f});
  return std::make_unique<ImageSet>(std::move(info), read_cifar(root, files), config, split);
}

}  // namespace paceline::data

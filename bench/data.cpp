// How fast one core feeds: CIFAR-sized images with crop and flip, and a folder of JPEGs against the decoder alone.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/data/loader.h"
#include "paceline/data/picture.h"
#if PACELINE_WITH_JPEG
#include <jpeglib.h>
#endif

namespace paceline::bench {
namespace {

/// Images a second that a loader without background threads gives: all the work is in this thread.
double images_per_s(const data::Dataset& dataset, std::int64_t batch, bool augment, int rounds) {
  data::LoaderOptions options;
  options.batch = batch;
  options.augment = augment;
  const auto loader = data::make_loader(dataset, options);
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    std::int64_t images = 0;
    loader->start(round, batch);
    const double took = time_of(
        [&] {
          while (const data::Batch* made = loader->next()) images += made->count;
        },
        0);
    rates.push_back(static_cast<double>(images) / took);
  }
  return median(rates);
}

#if PACELINE_WITH_JPEG
/// A folder of drawn photographs for as long as it lives: 500×375, waves with grain, so that they compress as photographs do.
class JpegFolder {
 public:
  explicit JpegFolder(int count) {
    RandomStream random(1, Purpose::data);
    for (int i = 0; i < count; ++i) {
      const auto folder = root_ / "train" / (i % 2 == 0 ? "a" : "b");
      std::filesystem::create_directories(folder);
      files_.push_back(folder / fmt::format("{}.jpg", i));
      write_jpeg(files_.back(), draw(random));
    }
    std::filesystem::create_directories(root_ / "val" / "a");
    std::filesystem::create_directories(root_ / "val" / "b");
    std::filesystem::copy_file(files_[0], root_ / "val" / "a" / "0.jpg");
    std::filesystem::copy_file(files_[1], root_ / "val" / "b" / "1.jpg");
  }

  const std::filesystem::path& root() const { return root_.path(); }
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  static data::Picture draw(RandomStream& random) {
    data::Picture picture;
    picture.resize({500, 375});
    const float fx = random.uniform(0.01f, 0.1f), fy = random.uniform(0.01f, 0.1f);
    std::size_t at = 0;
    for (int y = 0; y < picture.size.height; ++y)
      for (int x = 0; x < picture.size.width; ++x)
        for (int c = 0; c < 3; ++c)
          picture.rgb[at++] = static_cast<std::uint8_t>(
              118 + 90 * std::sin(fx * static_cast<float>(x * (c + 1))) * std::cos(fy * static_cast<float>(y)) + random.uniform(-20, 20));
    return picture;
  }

  static void write_jpeg(const std::filesystem::path& file, const data::Picture& picture) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = static_cast<JDIMENSION>(picture.size.width);
    info.image_height = static_cast<JDIMENSION>(picture.size.height);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 85, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<JSAMPROW>(picture.rgb.data() + std::size_t{info.next_scanline} * info.image_width * 3);
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    write_atomically(file, {reinterpret_cast<const char*>(bytes), size});
    std::free(bytes);
  }

  TemporaryFolder root_;
  std::vector<std::filesystem::path> files_;
};

/// The loader with its random crops, resizing and normalisation, against libjpeg alone on the same files.
Row jpeg_row(int rounds) {
  const JpegFolder folder(128);
  data::DataConfig config;
  config.name = "image_folder";
  config.root = folder.root().string();
  config.augment = true;
  const auto dataset = data::make_dataset(config, data::Split::train, 0);
  data::Picture picture;
  std::vector<double> ours, decoder;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(images_per_s(*dataset, 32, true, 1));
    const double took = time_of(
        [&] {
          for (const auto& file : folder.files()) {
            const std::string bytes = read_file(file);
            data::decode_picture(file.string(), {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, 1, picture);
          }
        },
        0);
    decoder.push_back(static_cast<double>(folder.files().size()) / took);
  }
  return {{"what", "JPEG folder, 500x375 to 224x224, random crop and flip"},
          {"images_per_s", median(ours)},
          {"peer", "the decoder alone"},
          {"peer_images_per_s", median(decoder)},
          {"ratio", median(ours) / median(decoder)}};
}
#endif

}  // namespace

std::vector<Row> bench_data(const Options& options, const Say& say) {
  std::vector<Row> rows;
  const std::int64_t batch = options.batch > 0 ? options.batch : 128;
  data::DataConfig config;
  config.augment = true;
  if (!options.root.empty()) {
    config.name = "cifar10";
    config.root = options.root;
  } else {
    config.name = "random";  // the same bytes per sample; what they show does not matter for speed
    config.train_samples = 50000;
  }
  say(config.name);
  const auto images = data::make_dataset(config, data::Split::train, 0);
  rows.push_back({{"what", fmt::format("{} 3x32x32, crop and flip", config.name)},
                  {"images_per_s", images_per_s(*images, batch, true, options.rounds)}});
  config.augment = false;
  rows.push_back(
      {{"what", fmt::format("{} 3x32x32, as it is", config.name)}, {"images_per_s", images_per_s(*images, batch, false, options.rounds)}});
#if PACELINE_WITH_JPEG
  say("a folder of JPEGs");
  rows.push_back(jpeg_row(options.rounds));
#endif
  return rows;
}

}  // namespace paceline::bench

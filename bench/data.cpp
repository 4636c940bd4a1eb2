// How fast one core feeds: CIFAR-sized images with crop and flip, a folder of JPEGs against the decoder alone, and windows of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/data/image_decoder.h"
#include "paceline/data/loader.h"
#include "paceline/data/token_file.h"
#if PACELINE_WITH_JPEG
#include <jpeglib.h>
#endif

namespace paceline::bench {
namespace {

/// Samples a second that a loader without background threads gives: all the work is in this thread.
double samples_per_s(const data::Dataset& dataset, std::int64_t batch, bool augment, int rounds) {
  data::LoaderOptions options;
  options.batch = batch;
  options.augment = augment;
  const auto loader = data::make_loader(dataset, options);
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    std::int64_t samples = 0;
    loader->start(round, batch);
    const double took = time_of(
        [&] {
          while (const data::Batch* made = loader->next()) samples += made->count;
        },
        0);
    rates.push_back(static_cast<double>(samples) / took);
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
  static data::DecodedImage draw(RandomStream& random) {
    data::DecodedImage image;
    image.resize({500, 375});
    const float fx = random.uniform(0.01f, 0.1f), fy = random.uniform(0.01f, 0.1f);
    std::size_t at = 0;
    for (int y = 0; y < image.size.height; ++y)
      for (int x = 0; x < image.size.width; ++x)
        for (int c = 0; c < 3; ++c)
          image.rgb[at++] = static_cast<std::uint8_t>(
              118 + 90 * std::sin(fx * static_cast<float>(x * (c + 1))) * std::cos(fy * static_cast<float>(y)) + random.uniform(-20, 20));
    return image;
  }

  static void write_jpeg(const std::filesystem::path& file, const data::DecodedImage& image) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = static_cast<JDIMENSION>(image.size.width);
    info.image_height = static_cast<JDIMENSION>(image.size.height);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 85, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<JSAMPROW>(image.rgb.data() + std::size_t{info.next_scanline} * info.image_width * 3);
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
  data::DecodedImage image;
  std::vector<double> ours, decoder;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(samples_per_s(*dataset, 32, true, 1));
    const double took = time_of(
        [&] {
          for (const auto& file : folder.files()) {
            const std::string bytes = read_file(file);
            data::decode_image(file.string(), {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, 1, image);
          }
        },
        0);
    decoder.push_back(static_cast<double>(folder.files().size()) / took);
  }
  return {{"what", "JPEG folder, 500x375 to 224x224, random crop and flip"},
          {"images_per_s", median(ours)},
          {"peer", "only the decoder"},
          {"peer_images_per_s", median(decoder)},
          {"ratio", median(ours) / median(decoder)}};
}
#endif

/// Windows of GPT-2's size from a mapped file in the order of an epoch, against the same number of tokens widened from memory in order.
Row token_row(int rounds) {
  constexpr std::int64_t kContext = 1024, kBatch = 16, kTokens = 32 << 20;
  const TemporaryFolder folder;
  std::vector<std::uint32_t> tokens(kTokens);
  RandomStream random(1, Purpose::data);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random.below(50257));
  data::write_token_file(folder / "train.bin", tokens, 16);
  data::write_token_file(folder / "val.bin", {tokens.data(), kContext + 1}, 16);
  data::DataConfig config;
  config.name = "tokens", config.root = folder.path().string(), config.context = kContext;
  const auto dataset = data::make_dataset(config, data::Split::train, 0);
  const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  std::vector<std::int64_t> inputs(kBatch * kContext), targets(inputs.size());
  std::vector<double> ours, peer;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(samples_per_s(*dataset, kBatch, true, 1) * kContext);
    std::int64_t widened = 0;
    const double took = time_of(
        [&] {
          for (; widened + kBatch * kContext < kTokens; widened += kBatch * kContext) {
            std::copy_n(narrow.begin() + widened, inputs.size(), inputs.begin());
            std::copy_n(narrow.begin() + widened + 1, targets.size(), targets.begin());
          }
        },
        0);
    peer.push_back(static_cast<double>(widened) / took);
  }
  return {{"what", "tokens of 16 bits, windows of 1024 in the epoch's order"},
          {"tokens_per_s", median(ours)},
          {"peer", "converting them in order"},
          {"peer_tokens_per_s", median(peer)},
          {"ratio", median(ours) / median(peer)}};
}

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
                  {"images_per_s", samples_per_s(*images, batch, true, options.rounds)}});
  config.augment = false;
  rows.push_back({{"what", fmt::format("{} 3x32x32, unchanged", config.name)},
                  {"images_per_s", samples_per_s(*images, batch, false, options.rounds)}});
#if PACELINE_WITH_JPEG
  say("a folder of JPEGs");
  rows.push_back(jpeg_row(options.rounds));
#endif
  say("windows of tokens");
  rows.push_back(token_row(options.rounds));
  return rows;
}

}  // namespace paceline::bench

// Images, JPEG and PNG, the whole way from a file in a folder to a sample: size, box, decoding, resizing.
#include "paceline/base/checksum.h"
#include "paceline/base/random.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/data/sets.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A image that is a link, so that the dataset can be made once.
  struct Folder {
    Folder() {
      std::filesystem::create_directories(place / "train/class");
      const fuzz::InputFile anything;
      std::filesystem::create_symlink(anything.path(), place / "train/class/picture.png");
      data::DataConfig config;
      config.name = "image_folder", config.root = place.path().string(), config.image_size = 32;
      pictures = data::make_image_folder(config, data::Split::train, 0);
      std::filesystem::remove(place / "train/class/picture.png");
    }
    TemporaryFolder place;
    std::unique_ptr<data::Dataset> pictures;
  };
  static const Folder folder;
  const fuzz::InputFile input(data, size);
  std::error_code ignored;
  std::filesystem::remove(folder.place / "train/class/picture.png", ignored);
  std::filesystem::create_symlink(input.path(), folder.place / "train/class/picture.png");

  data::Batch batch;
  folder.pictures->prepare(batch, 1);
  RandomStream chance(crc32c(bytes_of(fuzz::text_of(data, size))), Purpose::test);
  for (RandomStream* random : {static_cast<RandomStream*>(nullptr), &chance})
    fuzz::parse([&] { folder.pictures->read(0, random, batch, 0); });
  return 0;
}

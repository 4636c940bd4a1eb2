// The metadata of a checkpoint, as lines key=value: position, recipe, list of tensors. The seal is put on here, unless the input brings
// one, because no mutation would find it.
#include <array>

#include "paceline/base/text.h"
#include "paceline/train/checkpoint_metadata.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  safetensors::Metadata metadata;
  for (const std::string& line : split(fuzz::text_of(data, size), '\n'))
    if (const auto equals = line.find('='); equals != std::string::npos) metadata[line.substr(0, equals)] = line.substr(equals + 1);
  metadata.try_emplace("crc32c", train::seal_of(metadata));

  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  const std::array<safetensors::Tensor, 2> tensors = {{{"model.weight", safetensors::Dtype::F32, {2, 2}, bytes.first(16)},
                                                       {"model.bias", safetensors::Dtype::F32, {2}, bytes.subspan(16)}}};
  return fuzz::parse([&] {
    const train::CheckpointMetadata read = train::unpack_metadata("a checkpoint", metadata, tensors);
    const train::Position& position = read.position;
    fuzz::require(position.step >= 0 && position.epoch >= 0 && position.batch >= 0, "a position lies behind the start");
    const train::CheckpointMetadata again = train::unpack_metadata("a checkpoint", train::pack_metadata(read, tensors), tensors);
    fuzz::require(again.position.step == position.step && again.recipe == read.recipe, "what was read can be written and read again");
  });
}

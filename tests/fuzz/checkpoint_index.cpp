// The index of a checkpoint in several files: JSON with the metadata in it. The seal is put on here, unless the input brings one, because
// no mutation would find it.
#include <nlohmann/json.hpp>

#include "paceline/train/checkpoint_index.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(fuzz::text_of(data, size));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("metadata") && json["metadata"].is_object() && !json["metadata"].contains("crc32c")) {
    safetensors::Metadata metadata;
    for (const auto& [key, value] : json["metadata"].items())
      if (value.is_string()) metadata[key] = value.get<std::string>();
    json["metadata"]["crc32c"] = train::seal_of(metadata);
    text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return fuzz::parse([&] {
    train::is_checkpoint_index(text);
    const train::CheckpointIndex read = train::unpack_index("an index", text);
    for (const train::CheckpointIndex::Shard& shard : read.shards)
      fuzz::require(shard.file.find('/') == shard.file.npos, "a shard lies beside its index");
    const train::CheckpointIndex again = train::unpack_index("an index", train::pack_index(read));
    fuzz::require(again.tensors.size() == read.tensors.size() && again.weight_map() == read.weight_map(),
                  "what was read can be written and read again");
    train::files_of_index("an index", text);
  });
}

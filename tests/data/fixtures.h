// Files that the tests write for themselves, and small helpers to read sets back.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "paceline/base/temporary_folder.h"
#include "paceline/data/loader.h"
#include "tests/message_of.h"

namespace paceline::data {

using Bytes = std::vector<std::uint8_t>;

/// A folder of its own for each test, gone afterwards.
class Folder : public TemporaryFolder {
 public:
  void write(const std::string& name, const Bytes& bytes) const {
    std::filesystem::create_directories((*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
};

inline Bytes gzipped(const Bytes& plain) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = const_cast<std::uint8_t*>(plain.data());
  stream.avail_in = static_cast<unsigned>(plain.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<unsigned>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline Bytes first(const Bytes& bytes, std::size_t count) { return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)}; }

inline DataConfig config_of(const std::string& name, const std::string& root = "") {
  DataConfig config;
  config.name = name;
  config.root = root;
  return config;
}

/// One sample as read() writes it.
inline Batch sample(const Dataset& dataset, std::int64_t index, RandomStream* random = nullptr) {
  Batch batch;
  dataset.prepare(batch, 1);
  dataset.read(index, random, batch, 0);
  return batch;
}

/// $PACELINE_DATA/name, or empty where the real set is not on this machine.
inline std::string real_set(const std::string& name) {
  const char* shelf = std::getenv("PACELINE_DATA");
  if (!shelf || !std::filesystem::exists(std::filesystem::path(shelf) / name)) return "";
  return (std::filesystem::path(shelf) / name).string();
}

#define PACELINE_NEEDS_REAL_SET(name) \
  if (real_set(name).empty()) GTEST_SKIP() << name << " is not in $PACELINE_DATA"

}  // namespace paceline::data

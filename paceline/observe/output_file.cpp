#include "paceline/observe/output_file.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::observe {

OutputFile::OutputFile(std::filesystem::path path, const Clock& clock)
    : path_(std::move(path)), clock_(clock), out_(path_, std::ios::binary | std::ios::app), flushed_(clock.now()) {
  if (!out_) throw ConfigError(fmt::format("cannot write {}: {}", path_.string(), std::system_category().message(errno)));
}

void OutputFile::write(std::string_view record) {
  out_.write(record.data(), static_cast<std::streamsize>(record.size()));
  if (clock_.now() - flushed_ >= std::chrono::seconds(1)) flush();
}

void OutputFile::flush() {
  flushed_ = clock_.now();
  if (!out_.flush()) throw DataError(path_.string(), fmt::format("cannot write: {}", std::system_category().message(errno)));
}

}  // namespace paceline::observe

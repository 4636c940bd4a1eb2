#include "paceline/observe/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"

namespace paceline::observe {
namespace {

constexpr std::string_view kOpening = R"({"displayTimeUnit":"ms","traceEvents":[)", kClosing = "\n]}\n";
constexpr std::size_t kBlock = 256 * 1024;

std::string reason() { return std::system_category().message(errno); }

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

/// Microseconds, exact to the nanosecond.
std::string microseconds(Nanoseconds time) { return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000); }

}  // namespace

Trace::Trace(std::filesystem::path file, Bus& bus)
    : file_(std::move(file)), out_(::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)), pending_(kOpening) {
  if (!out_) throw ConfigError(fmt::format("cannot write {}: {}", file_.string(), reason()));
  flush();
  bus.want_spans();
}

Trace::~Trace() {
  try {
    flush();
  } catch (const DataError&) {  // a disk error only loses the last block
  }
}

void Trace::on(const Event& event) {
  if (const auto* span = std::get_if<Span>(&event)) {
    const int lane = lane_of(*span);
    add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{},"dur":{}}})", span->rank, lane, quoted(span->name),
                    microseconds(span->begin), microseconds(span->end - span->begin)));
    if (pending_.size() >= kBlock) flush();
  } else if (!std::holds_alternative<StepDone>(event)) {
    flush();
  }
}

void Trace::add(const std::string& event) {
  pending_ += empty_ ? "\n" : ",\n";
  pending_ += event;
  empty_ = false;
}

int Trace::lane_of(const Span& span) {
  auto& lanes = lanes_[span.rank];
  if (lanes.empty()) add(fmt::format(R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"rank {0}"}}}})", span.rank));
  const auto [found, fresh] = lanes.try_emplace(span.lane, static_cast<int>(lanes.size()));
  if (fresh)
    add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", span.rank, found->second,
                    quoted(span.lane)));
  return found->second;
}

void Trace::flush() {
  if (pending_.empty()) return;
  const std::string block = pending_ + std::string(kClosing);  // a copy: if the write fails, more spans may be appended to what is pending
  for (std::size_t written = 0; written < block.size();) {
    const ssize_t count = ::pwrite(out_.get(), block.data() + written, block.size() - written, end_ + static_cast<std::int64_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw DataError(file_.string(), "cannot write: " + reason());
    written += static_cast<std::size_t>(count);
  }
  end_ += static_cast<std::int64_t>(pending_.size());
  pending_.clear();
}

}  // namespace paceline::observe

#include "paceline/ps/transports/wire.h"

#include <fmt/format.h>

#include <array>

#include "paceline/base/error.h"

namespace paceline::ps::wire {
namespace {

constexpr std::array<std::string_view, 12> kNames = {"error", "join", "pull", "report", "push",  "cancelled",
                                                     "next",  "done", "beat", "leave",  "order", "answer"};

DataError malformed(const std::string& why) { return {"a message of the parameter server", why}; }

}  // namespace

std::string_view name(Verb verb) { return kNames.at(static_cast<std::size_t>(verb)); }

Head unpack_head(std::string_view bytes) {
  Head head;
  if (bytes.size() < sizeof(Head)) throw malformed(fmt::format("{} bytes are too short for a header", bytes.size()));
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.magic != Head{}.magic) throw malformed("the sender is not Paceline");
  if (head.version != Head{}.version)
    throw malformed(fmt::format("the other side uses protocol version {}, this one {}; use the same version of Paceline on all hosts",
                                head.version, Head{}.version));
  if (static_cast<std::size_t>(head.verb) >= kNames.size() || head.payload < 0) throw malformed("its header is invalid");
  return head;
}

void expect_body(std::string_view bytes, std::size_t size) {
  if (bytes.size() != sizeof(Head) + size)
    throw malformed(fmt::format("expected a header of {} bytes, got {}", sizeof(Head) + size, bytes.size()));
}

void expect_text(std::int64_t bytes, std::int64_t most) {
  if (bytes > most) throw malformed(fmt::format("a text has at most {} bytes here, not {}", most, bytes));
}

FailureMessage pack_failure(const std::exception& error) {
  Failure failure;
  std::string operation;
  if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
    failure.kind = Failure::peer, failure.rank = peer->rank(), failure.step = peer->step();
    operation = peer->operation();
  } else if (dynamic_cast<const ConfigError*>(&error)) {
    failure.kind = Failure::config;
  } else if (dynamic_cast<const DataError*>(&error)) {
    failure.kind = Failure::data;
  }
  failure.operation = static_cast<std::int64_t>(operation.size());
  std::string payload = operation + error.what();
  return {pack(Verb::error, failure, static_cast<std::int64_t>(payload.size())), std::move(payload)};
}

void raise(std::string_view head, std::string_view payload) {
  const auto failure = unpack<Failure>(head);
  if (failure.operation < 0 || static_cast<std::size_t>(failure.operation) > payload.size()) throw malformed("an error without its text");
  const std::string operation(payload.substr(0, static_cast<std::size_t>(failure.operation)));
  const std::string what(payload.substr(static_cast<std::size_t>(failure.operation)));
  switch (failure.kind) {
    case Failure::config: throw ConfigError(what);
    case Failure::data: throw DataError("the server", what);
    case Failure::peer: throw PeerError(static_cast<int>(failure.rank), operation, failure.step, what);
    default: throw Error(what);
  }
}

}  // namespace paceline::ps::wire

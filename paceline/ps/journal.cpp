#include "paceline/ps/journal.h"

#include <fmt/format.h>

#include <vector>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kMostWorkers = 1 << 14;
constexpr std::int64_t kMostWaiting =
    1 << 20;  // bytes, until the file's location is known: by then workers have joined, but nobody computes yet
/// File header. Format 1 had none and began with an event.
struct FileHeader {
  std::uint32_t magic = 0x4e4a4c50;  // "PLJN"
  std::uint32_t version = 2;
  bool operator==(const FileHeader&) const = default;
};

/// An event in the file; its values follow.
struct Record {
  Journal::Kind kind = Journal::Kind::joined;
  std::int64_t worker = 0;  // for `follows`: the number of events in the previous journal
  Push push;
  Report report;
  std::int64_t values = 0;
  std::int64_t checksum = 0;
};
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 4 * 8 + sizeof(Push) + sizeof(Report), "without gaps");

std::int64_t checksum_of(Record record, std::span<const float> values) {
  record.checksum = 0;
  return crc32c(std::as_bytes(values), crc32c(std::as_bytes(std::span(&record, 1))));
}

void play(const Record& record, std::vector<float>& values, std::vector<float>& pulled, Server& server) {
  const int worker = static_cast<int>(record.worker);
  switch (record.kind) {
    case Journal::Kind::joined: return server.joined(worker);
    case Journal::Kind::left: return server.left(worker);
    case Journal::Kind::all_away: return server.all_away();
    case Journal::Kind::returned: return server.returned(worker);
    case Journal::Kind::granted: return server.grant(worker);
    case Journal::Kind::pulled: return server.pull(worker, pulled.data(), record.push.rate);
    case Journal::Kind::reported: return static_cast<void>(server.report(worker, record.report, values.empty() ? nullptr : values.data()));
    case Journal::Kind::pushed: return static_cast<void>(server.push(worker, values.data(), record.push));
    case Journal::Kind::refused: return server.refuse(worker, record.push);
    case Journal::Kind::resumed: return server.resume(worker);
    case Journal::Kind::duplicate: return server.ignore_duplicate(worker);
    case Journal::Kind::completed: return server.complete(record.report.number);
    case Journal::Kind::interrupted: return server.interrupted();
    case Journal::Kind::lost: return server.interrupted(worker);
    case Journal::Kind::assigned:
    case Journal::Kind::follows: return;
  }
}

/// The reason why an event cannot have happened to a server in this state; empty if it can.
std::string obstacle_to(const Record& record, const Server& server) {
  if (record.kind < Journal::Kind::joined || record.kind > Journal::Kind::lost || record.kind == Journal::Kind::follows)
    return fmt::format("there is no event of kind {}", static_cast<std::int64_t>(record.kind));
  if (record.kind == Journal::Kind::all_away || record.kind == Journal::Kind::interrupted) return "";
  if (record.worker < 0 || record.worker >= kMostWorkers) return fmt::format("no worker has the number {}", record.worker);
  const int worker = static_cast<int>(record.worker);
  for (const std::int64_t number : {record.push.number, record.push.complete_below, record.report.number})
    if (number < 0 || number > kMostMinibatches) return fmt::format("no minibatch has the number {}", number);
  const bool pulls = record.kind == Journal::Kind::granted || record.kind == Journal::Kind::pulled || record.kind == Journal::Kind::resumed;
  if (pulls && !server.may_pull(worker)) return fmt::format("worker {} pulled when it might not", worker);
  if (record.kind == Journal::Kind::pushed && record.values != server.length())
    return fmt::format("expected gradients of {} values, got {}: it is of another model", server.length(), record.values);
  if (record.kind == Journal::Kind::reported && record.values != 0 && record.values != server.statistics_length())
    return fmt::format("expected {} statistics, got {}: it is of another model", server.statistics_length(), record.values);
  return "";
}

Completed completed_in(const Report& report) {
  const bool fits = report.t_comp_s >= 0 && report.t_comp_s <= static_cast<double>(kMostMinibatches);
  return {report.number, report.loss, report.t_comm_s, fits ? static_cast<std::int64_t>(report.t_comp_s) : 0};
}

DataError gap(const std::filesystem::path& file, std::int64_t expected, std::int64_t got) {
  return {file.string(), fmt::format("it follows a journal of {} events, of which {} are there, as after a full disk; resume the "
                                     "run from its last checkpoint",
                                     expected, got)};
}

}  // namespace

Report as_report(const Completed& minibatch) {
  return {minibatch.loss, minibatch.right, static_cast<double>(minibatch.targets), minibatch.number};
}

Journal::Journal(Place place, std::int64_t before) : place_(std::move(place)) {
  const FileHeader header;
  waiting_.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  note(Kind::follows, before);
  *events_ = 0;
}

void Journal::note(Kind kind, std::int64_t worker, const Push& push, const Report& report, std::span<const float> values) {
  ++*events_;
  if (gave_up_) return;
  Record record{.kind = kind, .worker = worker, .push = push, .report = report, .values = std::ssize(values)};
  record.checksum = checksum_of(record, values);
  if (!file_.is_open() && !open()) {
    waiting_.append(reinterpret_cast<const char*>(&record), sizeof(record));
    waiting_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    if (std::ssize(waiting_) > kMostWaiting) give_up();
    return;
  }
  file_.write(reinterpret_cast<const char*>(&record), sizeof(record));
  file_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  if (!file_.flush()) give_up();
}

bool Journal::open() {
  const std::optional<std::filesystem::path> path = place_();
  if (!path) return false;
  file_.open(*path, std::ios::binary | std::ios::trunc);
  file_.write(waiting_.data(), std::ssize(waiting_));
  waiting_ = {};
  return true;
}

void Journal::give_up() {
  log::error("cannot write the journal {}; what comes before the next snapshot is not kept",
             place_().value_or("of this server, which has no folder").string());
  waiting_ = {};
  gave_up_ = true;
}

Journal::Replayed Journal::replay(const std::filesystem::path& file, Server& server, std::optional<std::int64_t> before,
                                  const Progress& progress) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<float> values, pulled(static_cast<std::size_t>(server.length()));
  Replayed replayed;
  if (FileHeader header; stream.read(reinterpret_cast<char*>(&header), sizeof(header)) && header != FileHeader{})
    throw DataError(file.string(),
                    fmt::format("it is not a journal of format {}, the one this version of Paceline writes; use the version that wrote "
                                "it, or resume the run from its last checkpoint",
                                FileHeader{}.version));
  const auto longest = static_cast<std::int64_t>(std::filesystem::file_size(file) / sizeof(float));
  for (Record record; stream.read(reinterpret_cast<char*>(&record), sizeof(record));) {
    if (record.values < 0 || record.values > longest) break;
    values.resize(static_cast<std::size_t>(record.values));
    if (!stream.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)))) break;
    if (record.checksum != checksum_of(record, values)) break;
    if (!replayed.begun) {
      if (record.kind != Kind::follows)
        throw DataError(file.string(), "it does not begin like a journal; resume the run from its last checkpoint");
      if (before && record.worker != *before) throw gap(file, record.worker, *before);
      replayed.begun = true;
      continue;
    }
    if (const std::string why = obstacle_to(record, server); !why.empty())
      throw DataError(file.string(), fmt::format("event {}: {}", replayed.events + 1, why));
    play(record, values, pulled, server);
    if (progress && (record.kind == Kind::assigned || record.kind == Kind::completed))
      progress(record.kind, static_cast<int>(record.worker), completed_in(record.report));
    ++replayed.events;
    replayed.pushes += record.kind == Kind::pushed;
  }
  return replayed;
}

std::filesystem::path Journals::file(std::int64_t number) const {
  return stem_().value_or("").string() + fmt::format(".journal-{}", number);
}

std::unique_ptr<Journal> Journals::next() {
  const auto place = [stem = stem_, number = ++number_]() -> std::optional<std::filesystem::path> {
    if (const auto known = stem()) return known->string() + fmt::format(".journal-{}", number);
    return std::nullopt;
  };
  auto journal = std::make_unique<Journal>(place, *events_);
  events_ = journal->events();
  return journal;
}

std::int64_t Journals::replay(Server& server, std::int64_t from, const Journal::Progress& progress) {
  if (from > 0 && !std::filesystem::exists(file(from)))  // the events after it would be replayed on a different state
    throw DataError(file(from).string(), "the journal that follows the snapshot is missing; resume the run from its last checkpoint");
  std::int64_t pushes = 0;
  std::optional<std::int64_t> before;  // events of the last journal that was replayed
  for (number_ = from - 1; std::filesystem::exists(file(number_ + 1)); ++number_) {
    const Journal::Replayed replayed = Journal::replay(file(number_ + 1), server, before, progress);
    if (!replayed.begun) {  // replaced by the next one, unless that was already written
      if (std::filesystem::exists(file(number_ + 2)))
        throw DataError(file(number_ + 1).string(), "it has no beginning, as after a full disk; resume the run from its last checkpoint");
      break;
    }
    before = replayed.events;
    pushes += replayed.pushes;
  }
  events_ = std::make_shared<std::int64_t>(before.value_or(0));
  return pushes;
}

void Journals::forget_before(std::int64_t from) {
  if (!stem_()) return;
  std::error_code ignored;
  for (std::int64_t number = from - 1; number >= 0 && std::filesystem::remove(file(number), ignored); --number) {
  }
}

}  // namespace paceline::ps

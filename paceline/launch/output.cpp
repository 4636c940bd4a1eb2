#include "paceline/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "paceline/base/log.h"
#include "paceline/launch/role.h"

namespace paceline::launch {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;  // longer lines are broken, so that memory stays bounded
constexpr std::array kColors = {36, 33, 35, 32, 34, 31};
constexpr std::string_view kErase = "\r\x1b[K";

}  // namespace

Display Display::of_descriptor(int descriptor) {
  const char* terminal = std::getenv("TERM");
  Display display;
  display.live = ::isatty(descriptor) && terminal != nullptr && std::string_view(terminal) != "dumb";
  const char* colorless = std::getenv("NO_COLOR");
  display.color = display.live && (colorless == nullptr || *colorless == '\0');
  return display;
}

std::string Output::prefix(int rank, Stream stream) const {
  if (!options_.prefix) return {};
  const Role role = Role::of(rank, options_.servers);
  const std::string name = role.kind == Role::Kind::rank ? std::to_string(rank) : role.name();
  if (!display(stream).color) return fmt::format("[{}] ", name);
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColors[static_cast<std::size_t>(rank) % kColors.size()], name);
}

void Output::receive(int rank, Stream stream, std::string_view bytes) {
  log(rank, bytes);
  if (dropped(rank, stream)) return;
  if (raw(rank)) return write_(stream, bytes);
  const Key key{rank, stream};
  PartialLine& partial = lines_[key];
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view text = bytes.substr(0, end);
    if (partial.overwritten && !text.empty()) {
      partial.text.clear();
      partial.overwritten = false;
    }
    partial.text += text;
    while (partial.text.size() > kLongestLine) {
      PartialLine piece{partial.text.substr(0, kLongestLine)};
      partial.text.erase(0, kLongestLine);
      write_line(key, piece);
    }
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n') {
      write_line(key, partial);
    } else {
      partial.overwritten = true;
      draw(key, partial);
    }
    bytes.remove_prefix(end + 1);
  }
}

void Output::end(int rank, Stream stream) {
  const auto found = lines_.find({rank, stream});
  if (found == lines_.end()) return;
  if (!found->second.text.empty()) write_line(found->first, found->second);
  lines_.erase(found);
}

void Output::write_line(Key key, PartialLine& partial) {
  const auto& [rank, stream] = key;
  if (drawn_ == key) drawn_.reset(), drawing_.clear(), write_(stream, kErase);
  std::string text = prefix(rank, stream) + partial.text + "\n";
  if (drawn_ && display(stream).live) text = std::string(kErase) + text;
  write_(stream, text);
  if (drawn_ && display(stream).live) write_(drawn_->second, drawing_);
  partial = {};
}

void Output::draw(Key key, const PartialLine& partial) {
  const auto& [rank, stream] = key;
  if (!display(stream).live || (drawn_ && drawn_->first < rank)) return;
  drawn_ = key;
  drawing_ = std::string(kErase) + prefix(rank, stream) + partial.text;
  write_(stream, drawing_);
}

void Output::make_room(const std::function<void()>& write_lines) {
  if (drawn_) write_(drawn_->second, kErase);
  write_lines();
  if (drawn_) write_(drawn_->second, drawing_);
}

void Output::log(int rank, std::string_view bytes) {
  if (options_.folder.empty()) return;
  const auto [place, is_new] = files_.try_emplace(rank);
  Descriptor& file = place->second;
  const std::filesystem::path path = options_.folder / Role::of(rank, options_.servers).file_name();
  const auto give_up = [&] {
    log::warning("{}: {}; the rank's output is not written to it from now on", path.string(), std::strerror(errno));
    file.reset();
  };
  if (is_new) {
    file = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) give_up();
  }
  while (file && !bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return give_up();
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void OutputQueue::push(int descriptor, std::string_view text) {
  pieces_.push_back({descriptor, std::string(text)});
  bytes_ += text.size();
}

void OutputQueue::pump() {
  if (pieces_.empty()) return;
  const Piece& piece = pieces_.front();
  // A pipe that poll() reports as writable takes PIPE_BUF bytes without blocking; more is not guaranteed.
  const std::size_t count = std::min<std::size_t>(piece.text.size() - written_, PIPE_BUF);
  const ssize_t done = ::write(piece.descriptor, piece.text.data() + written_, count);
  if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // A reader that is gone (`… | head`) is no reason to stop training: the rest is dropped.
  written_ += done < 0 ? piece.text.size() : static_cast<std::size_t>(done);
  if (written_ < piece.text.size()) return;
  bytes_ -= piece.text.size();
  written_ = 0;
  pieces_.pop_front();
}

void OutputQueue::pump_what_goes() {
  while (!empty()) {
    pollfd entry{waiting_for(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) return;
    pump();
  }
}

}  // namespace paceline::launch

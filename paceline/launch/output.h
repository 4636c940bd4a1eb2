// The output of many ranks on one terminal, pipe or file: whole lines with the rank in front, [2], or [server 0] and [worker 1].
//
// A carriage return redraws the line (a progress bar). On a terminal the lowest rank that draws one gets the last line of the screen, and
// other lines scroll above it; elsewhere only its final state is written, as one line.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/launch/process.h"

namespace paceline::launch {

enum class Stream { out, err };

/// What a stream of the launcher can show.
struct Display {
  bool live = false;   // a line can be redrawn
  bool color = false;  // escape sequences are understood

  static Display of_descriptor(int descriptor);  ///< a terminal that is not "dumb"; no colours with NO_COLOR
};

struct OutputOptions {
  bool prefix = true;
  std::optional<int> only;       // only this rank's standard output, byte for byte; standard error of all
  std::filesystem::path folder;  // where each rank's output is kept as rank-N.log (server-N.log, worker-N.log); empty: nowhere
  int servers = 0;               // how many of the ranks are servers; the others are then called workers
  bool all_to_stderr = false;    // standard output of the ranks as well, because the launcher's own is for something else
  Display out, err;
};

class Output {
 public:
  /// Called with text that must stay together, in order.
  using Write = std::function<void(Stream, std::string_view text)>;

  Output(OutputOptions options, Write write) : options_(std::move(options)), write_(std::move(write)) {}

  void receive(int rank, Stream stream, std::string_view bytes);
  void end(int rank, Stream stream);  ///< what is still without a line's end is written

  /// For lines of the launcher itself: removes the bar, and redraws it afterwards.
  void make_room(const std::function<void()>& write_lines);

 private:
  struct PartialLine {
    std::string text;          // what has arrived of the line
    bool overwritten = false;  // a carriage return was the last byte: the next one starts the line over
  };
  using Key = std::pair<int, Stream>;

  const Display& display(Stream stream) const { return stream == Stream::out ? options_.out : options_.err; }
  bool raw(int rank) const { return options_.only == rank; }
  bool dropped(int rank, Stream stream) const { return options_.only && *options_.only != rank && stream == Stream::out; }
  std::string prefix(int rank, Stream stream) const;
  void write_line(Key key, PartialLine& partial);
  void draw(Key key, const PartialLine& partial);
  void log(int rank, std::string_view bytes);

  OutputOptions options_;
  Write write_;
  std::map<Key, PartialLine> lines_;
  std::map<int, Descriptor> files_;
  std::optional<Key> drawn_;  // the rank whose bar is the last line of the screen
  std::string drawing_;
};

/// Writes to descriptors as fast as their readers take it, in order, without ever blocking for long: the launcher must still receive
/// signals.
class OutputQueue {
 public:
  void push(int descriptor, std::string_view text);
  bool empty() const { return pieces_.empty(); }
  bool full() const { return bytes_ > kFull; }
  int waiting_for() const { return pieces_.front().descriptor; }  ///< poll() it for POLLOUT, then
  void pump();
  void pump_what_goes();  ///< as much as the readers take at once

 private:
  static constexpr std::size_t kFull = 1 << 20;
  struct Piece {
    int descriptor;
    std::string text;
  };
  std::deque<Piece> pieces_;
  std::size_t bytes_ = 0;
  std::size_t written_ = 0;  // of the first piece
};

}  // namespace paceline::launch

#include "paceline/schedule/drawing.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include <fmt/format.h>

#include "paceline/base/text.h"

namespace paceline::schedule {
namespace {

constexpr std::int64_t kMostMessages = 4096;

/// The ranks whose elements a stretch of a buffer holds, one bit each. If nothing is reduced: all of them, or none.
using Origins = std::uint64_t;

Origins all_of(int size) { return ~Origins{0} >> (64 - size); }

struct Message {
  int from = 0, to = 0, round = 0;
  Range out, in;  // differ only in an all-to-all
  bool reduces = false;
};

/// The steps of all ranks together.
struct Play {
  std::vector<Message> messages;                        // in the order of their rounds
  std::vector<std::int64_t> bounds;                     // of the stretches into which all ranges cut a buffer
  std::vector<std::vector<std::vector<Origins>>> held;  // [t][rank][stretch] before round t; the last are those at the end

  int rounds() const { return static_cast<int>(held.size()) - 1; }
  std::int64_t length() const { return bounds.back(); }
};

/// A barrier's messages are empty; in a drawing they carry the set of ranks that have arrived, in a buffer of one element.
Range visible(const Step& step, Collective collective) { return collective == Collective::barrier ? Range{0, 1} : step.range; }

/// The k-th message from one rank to another is the k-th in both lists.
std::vector<Message> messages_of(const std::vector<Steps>& lists, Collective collective) {
  const int size = static_cast<int>(lists.size());
  std::map<std::pair<int, int>, std::vector<Range>> sent;
  for (int from = 0; from < size; ++from)
    for (const Step& step : lists[static_cast<std::size_t>(from)])
      if (step.leaves()) sent[{from, step.peer}].push_back(visible(step, collective));
  std::map<std::pair<int, int>, std::size_t> arrived;
  std::vector<Message> messages;
  for (int to = 0; to < size; ++to)
    for (const Step& step : lists[static_cast<std::size_t>(to)])
      if (!step.leaves() && !step.stays()) {
        const std::pair edge{step.peer, to};
        messages.push_back({step.peer, to, step.round, sent.at(edge).at(arrived[edge]++), visible(step, collective), step.is_added()});
      }
  std::ranges::stable_sort(messages, {}, &Message::round);
  return messages;
}

/// What rank `rank` contributes at element `begin`.
Origins brought(const Problem& problem, int rank, std::int64_t begin) {
  switch (problem.collective) {
    case Collective::all_gather:
    case Collective::all_to_all: {
      const Range own = part(problem.count, problem.size, rank);
      return own.begin <= begin && begin < own.end ? all_of(problem.size) : 0;
    }
    case Collective::broadcast: return rank == problem.root ? all_of(problem.size) : 0;
    default: return Origins{1} << rank;
  }
}

Play play(const Algorithm& algorithm, Problem problem) {
  std::vector<Steps> lists;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) lists.push_back(algorithm.steps(problem));
  Play play{.messages = messages_of(lists, problem.collective), .bounds = {}, .held = {}};

  std::set<std::int64_t> bounds{0, std::max<std::int64_t>(problem.collective == Collective::barrier ? 1 : problem.count, 1)};
  for (int rank = 0; rank < problem.size; ++rank) bounds.insert(part(*bounds.rbegin(), problem.size, rank).begin);
  for (const Message& message : play.messages) bounds.insert({message.in.begin, message.in.end, message.out.begin, message.out.end});
  play.bounds.assign(bounds.begin(), bounds.end());

  auto& first = play.held.emplace_back(static_cast<std::size_t>(problem.size));
  for (int rank = 0; rank < problem.size; ++rank)
    for (std::size_t s = 0; s + 1 < play.bounds.size(); ++s)
      first[static_cast<std::size_t>(rank)].push_back(brought(problem, rank, play.bounds[s]));

  const bool gathers_word = problem.collective == Collective::barrier, moves = problem.collective == Collective::all_to_all;
  for (auto next = play.messages.begin(); next != play.messages.end();) {
    const auto before = play.held.back();
    auto after = before;
    for (const int round = play.rounds(); next != play.messages.end() && next->round == round; ++next)
      for (std::size_t s = 0; s + 1 < play.bounds.size(); ++s) {
        if (play.bounds[s] < next->in.begin || play.bounds[s] >= next->in.end) continue;
        const Origins comes = moves ? all_of(problem.size) : before[static_cast<std::size_t>(next->from)][s];
        Origins& here = after[static_cast<std::size_t>(next->to)][s];
        here = next->reduces || gathers_word ? here | comes : comes;
      }
    play.held.push_back(std::move(after));
  }
  return play;
}

// Pixels.
constexpr int kMargin = 28, kLeft = 76, kColumn = 92, kBar = 66, kBarHeight = 12, kRow = 66, kLeastWidth = 620;

constexpr std::string_view kHead = R"(<defs>
<marker id="added" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#e0803a"/></marker>
<marker id="placed" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#3a7fc8"/></marker>
</defs>
<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:#59616b}
.ground{fill:#ffffff}.title{font-size:17px;font-weight:600;fill:#1c2026}.name{fill:#343a42}.host{fill:#f1f3f6}
.bar{fill:#ffffff;stroke:#a9b0b9}.held{fill:#3b9e74}
.added,.placed{fill:none;stroke-width:1.6}.added{stroke:#e0803a;marker-end:url(#added)}.placed{stroke:#3a7fc8;marker-end:url(#placed)}
.out{stroke-width:3;marker-end:none}
@media (prefers-color-scheme:dark){
text{fill:#9aa3ae}.ground{fill:#16191e}.title{fill:#eceff3}.name{fill:#cbd1d9}.host{fill:#1f242b}.bar{fill:#16191e;stroke:#5a636e}}
</style>
)";

std::string text_at(double x, double y, std::string_view style, std::string_view text, std::string_view anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style, anchor, text);
}

std::string line_between(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2, style);
}

std::string_view style_of(bool reduces) { return reduces ? "added" : "placed"; }

/// Partial sums are much lighter than complete ones, which must be recognisable at a glance.
std::string filling(double x, double y, double width, double share) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" class=\"held\" fill-opacity=\"{:.2f}\"/>\n", x, y,
                     width, kBarHeight, share < 1 ? 0.1 + 0.55 * share : 1.0);
}

std::string frame(double x, double y, double width) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" class=\"bar\"/>\n", x, y, width, kBarHeight);
}

class Drawing {
 public:
  Drawing(const Entry<Algorithm>& algorithm, const Problem& problem)
      : algorithm_(algorithm), problem_(problem), play_(play(algorithm.make, problem)) {}

  std::string draw() const {
    const int width = std::max(kLeastWidth, kLeft + problem_.size * kColumn + kMargin);
    const auto height = bar_top(play_.rounds()) + kBarHeight + kMargin;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} {1:.0f}\" role=\"img\">\n", width,
        height);
    out += fmt::format("<title>{}</title>\n{}<rect width=\"{}\" height=\"{:.0f}\" class=\"ground\"/>\n", title(), kHead, width, height);
    out += text_at(kMargin, kMargin + 10, "title", title()) + text_at(kMargin, kMargin + 32, "sub", cost());
    out += legend() + hosts();
    for (int rank = 0; rank < problem_.size; ++rank)
      out += text_at(bar_left(rank) + kBar / 2.0, bar_top(0) - 10, "name", fmt::format("rank {}", rank), "middle");
    for (int round = 0; round < play_.rounds(); ++round)
      out += text_at(kMargin, bar_top(round) + kBarHeight + (kRow - kBarHeight) / 2.0 + 4, "name", fmt::format("round {}", round));
    for (int round = 0; round <= play_.rounds(); ++round)
      for (int rank = 0; rank < problem_.size; ++rank) out += buffer(round, rank);
    for (const Message& message : play_.messages) out += arrow(message);
    return out + "</svg>\n";
  }

 private:
  bool shows_hosts() const { return problem_.per_host > 1 && problem_.per_host < problem_.size; }
  bool adds_up() const { return std::ranges::any_of(play_.messages, &Message::reduces); }

  double bar_left(int rank) const { return kLeft + rank * kColumn + (kColumn - kBar) / 2.0; }
  double bar_top(int round) const { return kMargin + 118 + (shows_hosts() ? 22 : 0) + round * kRow; }
  double x_of(int rank, std::int64_t element) const {
    return bar_left(rank) + kBar * static_cast<double>(element) / static_cast<double>(play_.length());
  }

  std::string title() const {
    return fmt::format("{}: {} of {}", algorithm_.key, name_of(problem_.collective), plural(problem_.size, "rank"));
  }

  std::string cost() const {
    const Counts counts = algorithm_.make.formula(problem_);
    std::string rounds = plural(counts.rounds, "round");
    if (counts.sent == 0) return rounds;
    const auto of_n = [&](std::int64_t elements) {
      return elements == problem_.count ? "n"
                                        : fmt::format("{:.4g} n", static_cast<double>(elements) / static_cast<double>(problem_.count));
    };
    const std::string sends = fmt::format("{}; of a buffer of n elements a rank sends at most {}", rounds, of_n(counts.sent));
    return counts.reduced == 0 ? sends : sends + fmt::format(" and reduces at most {}", of_n(counts.reduced));
  }

  std::string legend() const {
    const double y = kMargin + 54;
    std::string out;
    double x = kMargin;
    const auto explain = [&](bool reduces, std::string_view text, double width) {
      out += line_between(x, y - 4, x + 26, y - 4, style_of(reduces)) + text_at(x + 34, y, "name", text);
      x += width;
    };
    if (adds_up()) explain(true, "is added to what is there", 210);
    if (!std::ranges::all_of(play_.messages, &Message::reduces))
      explain(false, problem_.collective == Collective::barrier ? "tells who has arrived" : "replaces what is there", 0);
    x = kMargin;
    const auto show = [&](double share, std::string_view text, double width) {
      out += frame(x, y + 11, 26) + (share > 0 ? filling(x, y + 11, 26, share) : "") + text_at(x + 34, y + 21, "name", text);
      x += width;
    };
    if (problem_.collective == Collective::barrier) {
      show(1.0 / problem_.size, "knows of one rank", 160);
      show(1, "of all", 0);
    } else if (adds_up()) {
      show(1.0 / problem_.size, "elements of one rank", 178);
      if (problem_.size > 2) show(0.5, "the sum of several", 162);
      show(1, "of all", 0);
    } else {
      show(0, "not there yet", 130);
      show(1, "there", 0);
    }
    return out;
  }

  std::string hosts() const {
    std::string out;
    if (!shows_hosts()) return out;
    for (int first = 0; first < problem_.size; first += problem_.per_host) {
      const int ranks = std::min(problem_.per_host, problem_.size - first);
      const double left = kLeft + first * kColumn + 4, top = bar_top(0) - 46;
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\" class=\"host\"/>\n", left, top,
                         ranks * kColumn - 8.0, bar_top(play_.rounds()) + kBarHeight + 12 - top);
      out += text_at(left + (ranks * kColumn - 8) / 2.0, top + 16, "sub", fmt::format("host {}", first / problem_.per_host), "middle");
    }
    return out;
  }

  std::string buffer(int round, int rank) const {
    const double y = bar_top(round);
    const auto& held = play_.held[static_cast<std::size_t>(round)][static_cast<std::size_t>(rank)];
    std::string out = frame(bar_left(rank), y, kBar);
    for (std::size_t begin = 0, end = 0; begin < held.size(); begin = end) {
      while (end < held.size() && held[end] == held[begin]) ++end;
      const double left = x_of(rank, play_.bounds[begin]), right = x_of(rank, play_.bounds[end]);
      if (held[begin] != 0) out += filling(left, y, right - left, static_cast<double>(std::popcount(held[begin])) / problem_.size);
    }
    return out;
  }

  std::string arrow(const Message& message) const {
    const double top = bar_top(message.round) + kBarHeight + 3, bottom = bar_top(message.round + 1) - 3;
    const double out_left = x_of(message.from, message.out.begin), out_right = x_of(message.from, message.out.end);
    const double in_left = x_of(message.to, message.in.begin), in_right = x_of(message.to, message.in.end);
    const std::string mark = fmt::format("{} out", style_of(message.reduces));
    return line_between(out_left + 1, top, out_right - 1, top, mark) + line_between(in_left + 1, bottom, in_right - 1, bottom, mark) +
           line_between((out_left + out_right) / 2, top, (in_left + in_right) / 2, bottom - 1, style_of(message.reduces));
  }

  const Entry<Algorithm>& algorithm_;
  const Problem problem_;
  const Play play_;
};

}  // namespace

std::string drawing(std::string_view algorithm, const Problem& problem) {
  const auto& entry = algorithm_for(algorithm, problem.collective);
  if (problem.size > 64 || problem.chunks > kMostMessages || std::int64_t{problem.size} * problem.size * problem.chunks > kMostMessages)
    throw ConfigError(fmt::format("a picture of {} ranks with chunks={} would be unreadable; ranks² · chunks must be at most {}",
                                  problem.size, problem.chunks, kMostMessages));
  entry.make.formula(problem);  // throws for an impossible problem
  return Drawing(entry, problem).draw();
}

}  // namespace paceline::schedule

// Reads cluster files. Every error names the file, line and key. cluster_text.cpp writes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"
#include "paceline/base/toml.h"
#include "paceline/perf/cluster.h"

namespace paceline::perf {
namespace {

constexpr double kStandardLatency = 5e-6;
constexpr std::string_view kLinkPrefix = "link.", kCollectivePrefix = "collective.";

constexpr std::string_view kEfficiencyExample = "1 Mflop: 41%, 1 Gflop: 93% (measured)";

/// The section [device.bf16] or one like it; null for any other.
Speed* speed_named(Device& device, std::string_view section) {
  if (section == "device.tf32") return &device.tf32;
  if (section == "device.bf16") return &device.bf16;
  return section == "device.fp16" ? &device.fp16 : nullptr;
}

/// A key whose text must be parsed.
struct Parsed {
  std::function<void(std::string_view)> read;
  std::string example;
};

/// One section of the file while it is read: plain keys belong to a Section, the others have a reader.
struct Part {
  explicit Part(std::string name) : plain(std::move(name), "") {}

  void quantity(const std::string& key, Quantity& target, Dimension dimension, bool required = true) {
    add(key, std::string(example_of(dimension)), required,
        [&target, dimension](std::string_view text) { target = parse_quantity(text, dimension); });
  }
  void factor(const std::string& key, Quantity& target, double least, double most) {
    add(key, std::string(example_of(Dimension::factor)), false, [&target, least, most](std::string_view text) {
      target = parse_quantity(text, Dimension::factor);
      if (target.value < least || target.value > most)
        throw ConfigError(fmt::format("must be {} x to {} x, not \"{}\"", least, most, text));
    });
  }
  void efficiency(Efficiency& products, Efficiency& convolutions) {
    add("products", std::string(kEfficiencyExample), false, [&](std::string_view text) { products = parse_efficiency(text); });
    add("convolutions", std::string(kEfficiencyExample), false, [&](std::string_view text) { convolutions = parse_efficiency(text); });
  }
  void add(const std::string& key, std::string example, bool required, std::function<void(std::string_view)> read) {
    plain.field(key, texts.emplace_back(), "");
    parsed[key] = {std::move(read), std::move(example)};
    if (required) missing.push_back(key);
  }

  Section plain;
  std::map<std::string, Parsed> parsed;
  std::deque<std::string> texts;                           // placeholders for parsed keys in `plain`, so that it knows all keys
  std::vector<std::string> missing;                        // required keys that have not been read yet
  std::int64_t line = 0;                                   // of the heading; 0: the file has none
  std::map<std::string, std::int64_t, std::less<>> lines;  // of the keys that were read
};

Blocks parse_blocks(std::string_view text) {
  const auto open = std::min(text.find('('), text.size());
  const std::vector<std::string> sizes = items_of(text.substr(0, open), 'x');
  // A source is written like that of any quantity.
  const Source source = parse_quantity(fmt::format("1 B {}", text.substr(open)), Dimension::bytes).source;
  std::vector<std::int64_t> numbers;
  for (const std::string& size : sizes) {
    const Value value = parse_value(size);
    if (const auto* number = std::get_if<std::int64_t>(&value); number && *number > 0) numbers.push_back(*number);
  }
  if (sizes.size() != 3 || numbers.size() != 3)
    throw ConfigError(fmt::format("must be three sizes above 0, like \"480 x 3072 x 384 (spec)\", not \"{}\"", text));
  return {numbers[0], numbers[1], numbers[2], source};
}

/// A name that needs no quotes in a file.
void refuse_odd_name(std::string_view name, std::string_view whose) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (!std::ranges::all_of(name, plain))
    throw ConfigError(fmt::format("{} may have only letters, digits, _ and -, not \"{}\"", whose, name));
}

class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {
    Part& cluster = parts_.try_emplace("cluster", "cluster").first->second;
    cluster.plain.field("name", cluster_.name, "");
    cluster.plain.field("hosts", cluster_.hosts, "").at_least(1).at_most(1e6);
    cluster.plain.field("topology", topology_, "").one_of(topology_names());
    cluster.plain.field("sides", cluster_.sides, "").at_least(1);
    cluster.plain.field("oversubscription", cluster_.oversubscription, "").at_least(1);
    cluster.plain.field("link", between_, "");
    Part& host = parts_.try_emplace("host", "host").first->second;
    host.plain.field("devices", cluster_.devices, "").at_least(1).at_most(1e4);
    host.plain.field("rails", cluster_.rails, "").at_least(1).at_most(1e4);
    host.plain.field("link", inside_, "");
    Part& device = parts_.try_emplace("device", "device").first->second;
    device.plain.field("name", cluster_.device.name, "");
    device.plain.field("kind", cluster_.device.kind, "").one_of({"cpu", "gpu"});
    device.quantity("flops", cluster_.device.flops, Dimension::flops);
    device.quantity("memory_bandwidth", cluster_.device.memory_bandwidth, Dimension::bandwidth);
    device.quantity("memory", cluster_.device.memory, Dimension::bytes);
    device.add("blocks", "480 x 3072 x 384 (spec)", false, [this](std::string_view text) { cluster_.device.blocks = parse_blocks(text); });
    device.efficiency(cluster_.device.products, cluster_.device.convolutions);
    device.quantity("launch", cluster_.device.launch, Dimension::time, false);
    device.quantity("update_bandwidth", cluster_.device.update_bandwidth, Dimension::bandwidth, false);
    device.quantity("reduce_bandwidth", cluster_.device.reduce_bandwidth, Dimension::bandwidth, false);
    device.quantity("page_bandwidth", cluster_.device.page_bandwidth, Dimension::bandwidth, false);
    device.quantity("host_link", cluster_.device.host_link, Dimension::bandwidth, false);
    device.quantity("host_updates", cluster_.device.host_updates, Dimension::bandwidth, false);
    device.factor("slowdown", cluster_.device.slowdown, 1, 100);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Cluster read(const std::string& text) {
    for (const TomlEntry& entry : read_toml(text, source_)) at_line(entry.line, [&] { take(entry); });
    for (const auto& [name, part] : parts_) {
      if (part.missing.empty()) continue;
      const std::string& key = part.missing.front();
      at_line(part.line, [&, &of = part, &section = name] {
        throw ConfigError(fmt::format("{}.{} is missing; write {} = \"{}\"", section, key, key, of.parsed.at(key).example));
      });
    }
    for (const Topology topology : kTopologies)
      if (name_of(topology) == topology_) cluster_.topology = topology;
    at_line(line_of("cluster", "name"), [&] { refuse_odd_name(cluster_.name, "cluster.name"); });
    at_line(line_of("device", "name"), [&] { refuse_odd_name(cluster_.device.name, "device.name"); });
    connect();
    check_sides();
    cluster_.collectives = {collectives_.begin(), collectives_.end()};
    return std::move(cluster_);
  }

 private:
  static std::vector<std::string_view> topology_names() {
    std::vector<std::string_view> names;
    for (const Topology topology : kTopologies) names.push_back(name_of(topology));
    return names;
  }

  static std::vector<std::string_view> collective_names() {
    std::vector<std::string_view> names;
    for (const schedule::Collective kind : schedule::kCollectives) names.push_back(schedule::name_of(kind));
    return names;
  }
  static std::vector<std::string_view> algorithm_names() {
    std::vector<std::string_view> names = {"auto"};
    for (const auto& row : schedule::algorithms()) names.push_back(row.key);
    return names;
  }

  void at_line(std::int64_t line, auto&& act) {
    try {
      act();
    } catch (const ConfigError& problem) {
      throw ConfigError(line > 0 ? fmt::format("{}, line {}: {}", source_, line, problem.what())
                                 : fmt::format("{}: {}", source_, problem.what()));
    }
  }

  Part& part_named(const std::string& section) {
    if (const auto found = parts_.find(section); found != parts_.end()) return found->second;
    if (Speed* speed = speed_named(cluster_.device, section)) {
      Part& part = parts_.try_emplace(section, section).first->second;
      part.quantity("flops", speed->flops, Dimension::flops);
      part.efficiency(speed->products, speed->convolutions);
      return part;
    }
    if (section.starts_with(kCollectivePrefix)) {
      CollectiveTimes& times = collectives_.emplace_back(CollectiveTimes{.collective = "allreduce", .algorithm = "auto"});
      Part& part = parts_.try_emplace(section, section).first->second;
      part.plain.field("collective", times.collective, "").one_of(collective_names());
      part.plain.field("algorithm", times.algorithm, "").one_of(algorithm_names());
      part.plain.field("ranks", times.ranks, "").at_least(2).at_most(1e6);
      part.plain.field("per_host", times.per_host, "").at_least(1).at_most(1e6);
      part.add("times", "1024 B: 6 us, 1 MB: 300 us (measured)", true, [&times](std::string_view text) { parse_times(text, times); });
      return part;
    }
    if (section.starts_with(kLinkPrefix)) {
      refuse_odd_name(section.substr(kLinkPrefix.size()), "the name of a link");
      Link& link = links_[section.substr(kLinkPrefix.size())];
      link = {.name = section.substr(kLinkPrefix.size()), .latency = {kStandardLatency, Source::standard}, .bandwidth = {}};
      Part& part = parts_.try_emplace(section, section).first->second;
      part.quantity("latency", link.latency, Dimension::time, false);
      part.quantity("bandwidth", link.bandwidth, Dimension::bandwidth);
      part.quantity("gap", link.gap, Dimension::time, false);
      part.factor("duplex", link.duplex, 1, 2);
      return part;
    }
    const std::string_view known[] = {"cluster",     "host",        "device",    "device.tf32",
                                      "device.bf16", "device.fp16", "link.NAME", "collective.NAME"};
    throw ConfigError(unknown_message("section", section, known));
  }

  void take(const TomlEntry& entry) {
    if ((entry.section == "link" || entry.section == "collective") && entry.key.empty()) return;  // the heading above [link.NAME]
    Part& part = part_named(entry.section);
    if (entry.key.empty()) {
      part.line = entry.line;
      return;
    }
    Field& field = part.plain.at(entry.key);
    part.lines[entry.key] = entry.line;
    try {
      const auto parsed = part.parsed.find(entry.key);
      if (parsed == part.parsed.end()) return field.assign(entry.value);
      const auto* text = std::get_if<std::string>(&entry.value);
      if (!text) throw ConfigError(fmt::format("has no unit; write it like \"{}\"", parsed->second.example));
      parsed->second.read(*text);
      std::erase(part.missing, entry.key);
    } catch (const ConfigError& problem) {
      const std::string_view what = problem.what();
      throw ConfigError(fmt::format("{}.{}{}{}", entry.section, entry.key, what.starts_with(':') ? "" : " ", what));
    }
  }

  std::int64_t line_of(const std::string& section, std::string_view key) const {
    const Part& part = parts_.at(section);
    const auto found = part.lines.find(key);
    return found == part.lines.end() ? part.line : found->second;
  }

  static std::string first_link(const std::string& name) {
    return fmt::format("write a section [link.{}] with, for example, bandwidth = \"10 Gb/s (spec)\" and latency = \"30 us (default)\"",
                       name);
  }

  const Link& link_named(const std::string& section, const std::string& name) {
    std::vector<std::string_view> names;
    for (const auto& [known, link] : links_) {
      if (known == name) return link;
      names.push_back(known);
    }
    at_line(line_of(section, "link"), [&] {
      if (name.empty())
        throw ConfigError(fmt::format("{}.link is missing; name the link that connects its {}{}", section,
                                      section == "host" ? "devices" : "hosts", names.empty() ? ", and " + first_link("NAME") : ""));
      if (names.empty()) throw ConfigError(fmt::format("{}.link: the file has no links; {}", section, first_link(name)));
      throw ConfigError(fmt::format("{}.link: {}; each link is a section [link.NAME]", section, unknown_message("link", name, names)));
    });
    throw InternalError("unreachable");
  }

  /// Assigns links to the inside of hosts and to the network. If the file has only one class, it is used for both.
  void connect() {
    const bool alone = cluster_.processes() == 1;
    if (alone && between_.empty())
      at_line(parts_.at("cluster").line, [&] {
        throw ConfigError(fmt::format("cluster.link is missing; name the link that would connect a second host{}",
                                      links_.empty() ? ", and " + first_link("NAME") : ""));
      });
    if (!between_.empty() || cluster_.hosts > 1) cluster_.between = link_named("cluster", between_);
    if (!inside_.empty() || cluster_.devices > 1) cluster_.inside = link_named("host", inside_);
    if (cluster_.devices == 1) cluster_.inside = cluster_.between;
    if (cluster_.hosts == 1 && !alone) cluster_.between = cluster_.inside;
    for (const auto& [name, link] : links_)
      if (name != between_ && name != inside_)
        at_line(parts_.at(std::string(kLinkPrefix) + name).line, [&, &unused = name] {
          throw ConfigError(fmt::format("link.{} is not used; name it in host.link or cluster.link, or leave it out", unused));
        });
  }

  void check_sides() {
    if (cluster_.sides.empty()) return;
    std::int64_t product = 1;
    for (const std::int64_t side : cluster_.sides)
      product = std::min(product * std::min(side, std::int64_t{1} << 20), std::int64_t{1} << 40);
    at_line(line_of("cluster", "sides"), [&] {
      if (cluster_.topology != Topology::mesh && cluster_.topology != Topology::torus)
        throw ConfigError(fmt::format("cluster.sides is for a mesh or a torus, not a {}; leave it out", topology_));
      if (product != cluster_.processes())
        throw ConfigError(fmt::format("cluster.sides = [{}] has {} places for {} devices ({} hosts of {})", fmt::join(cluster_.sides, ", "),
                                      product, cluster_.processes(), cluster_.hosts, cluster_.devices));
    });
  }

  std::string source_, topology_ = "star", inside_, between_;
  Cluster cluster_;
  std::map<std::string, Part> parts_;
  std::map<std::string, Link> links_;
  std::deque<CollectiveTimes> collectives_;
};

}  // namespace

Cluster read_cluster(const std::string& text, const std::string& source) { return Reader(source).read(text); }

Cluster find_cluster(const std::string& name_or_file) {
  for (const auto& row : clusters())
    if (row.key == name_or_file) return row.make();
  const bool looks_like_file = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".toml");
  std::error_code code;
  if (!looks_like_file && !std::filesystem::exists(name_or_file, code)) return find(clusters(), "cluster", name_or_file).make();
  return read_cluster(read_file(name_or_file), name_or_file);
}

}  // namespace paceline::perf

// paceline algorithm [KEY]: what a collective algorithm or a pipeline schedule does and costs, every rank's steps, and an SVG of them.
// Without a key: a table of all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "algorithm_pipeline.h"
#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/suggest.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/schedule/drawing.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;
using schedule::Algorithm;
using schedule::Collective;
using schedule::Counts;
using schedule::Problem;
using schedule::Step;
using schedule::Steps;

struct AlgorithmFlags {
  std::string key, collective = "allreduce", svg;
  int ranks = 8, root = 0, per_host = 1;
  std::int64_t count = 0, chunks = 1;
  PipelineFlags pipeline;
  bool json = false;
};

constexpr std::int64_t kMostSteps = 1 << 18;  // ranks² · chunks: bounds the number of messages

/// The smallest buffer for which all parts, halves and chunks have the same size in every algorithm, so that the formulas are exact.
std::int64_t even_count(const AlgorithmFlags& flags) {
  const std::int64_t ranks = flags.ranks, members = static_cast<std::int64_t>(std::bit_floor(static_cast<unsigned>(flags.ranks)));
  return std::lcm(std::lcm(ranks, members), std::int64_t{2}) * flags.chunks;
}

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const Collective collective : schedule::kCollectives) names.emplace_back(name_of(collective));
  return names;
}

Problem problem_of(const AlgorithmFlags& flags) {
  const std::vector<std::string> all = collective_names();
  const std::vector<std::string_view> names(all.begin(), all.end());
  const auto found = std::ranges::find(names, flags.collective);
  if (found == names.end()) throw ConfigError(unknown_message("collective", flags.collective, names));
  if (flags.chunks > kMostSteps / flags.ranks / flags.ranks)
    throw ConfigError(fmt::format("--ranks {} with --chunks {} makes too long a list of steps; ranks² · chunks must be at most {}",
                                  flags.ranks, flags.chunks, observe::show_count(kMostSteps)));
  const Collective collective = schedule::kCollectives[found - names.begin()];
  return {.collective = collective,
          .rank = 0,
          .size = flags.ranks,
          .count = collective == Collective::barrier ? 0
                   : flags.count > 0                 ? flags.count
                                                     : even_count(flags),
          .root = flags.root,
          .per_host = flags.per_host,
          .chunks = flags.chunks};
}

ordered_json to_json(const Counts& counts) { return {{"rounds", counts.rounds}, {"sent", counts.sent}, {"reduced", counts.reduced}}; }

std::vector<std::string_view> offers(const Algorithm& algorithm) {
  std::vector<std::string_view> names;
  for (const Collective collective : algorithm.offers) names.push_back(name_of(collective));
  return names;
}

// All of them
// ---------------------------------------------------------------------------------------------------------------------------------------

/// "2 rounds; a rank sends 1.75 n and reduces 0.875 n"
std::string in_words(const Counts& counts, std::int64_t count) {
  std::string rounds = observe::plural(counts.rounds, "round");
  if (counts.sent == 0) return rounds;
  const auto of_n = [&](std::int64_t elements) {
    return elements == count ? "n" : fmt::format("{:.4g} n", static_cast<double>(elements) / static_cast<double>(count));
  };
  return fmt::format("{}; a rank sends {}{}", rounds, of_n(counts.sent), counts.reduced == 0 ? "" : " and reduces " + of_n(counts.reduced));
}

int list_algorithms(const AlgorithmFlags& flags) {
  const Problem problem = problem_of(flags);
  ordered_json rows = ordered_json::array();
  std::string text =
      fmt::format("{} of n elements, {}, {} per host:\n", flags.collective, observe::plural(problem.size, "rank"), problem.per_host);
  for (const auto& row : schedule::algorithms()) {
    const bool offered = row.make.offer(problem.collective);
    const Counts counts = offered ? row.make.formula(problem) : Counts{};
    rows.push_back({{"key", row.key},
                    {"help", row.help},
                    {"offers", offers(row.make)},
                    {"formula", offered ? to_json(counts) : ordered_json(nullptr)}});
    text += fmt::format("\n  {:<20}{}\n  {:20}{}\n  {:20}offers {}\n", row.key, row.help, "",
                        offered ? in_words(counts, problem.count) : "does not offer " + flags.collective, "",
                        fmt::join(offers(row.make), ", "));
  }
  if (flags.json)
    print_json({{"collective", flags.collective},
                {"ranks", problem.size},
                {"count", problem.count},
                {"per_host", problem.per_host},
                {"chunks", problem.chunks},
                {"algorithms", rows}});
  else std::cout << text << '\n' << list_pipelines(flags.pipeline);
  return kDone;
}

// One of them
// ---------------------------------------------------------------------------------------------------------------------------------------

constexpr const char* kNames[] = {"send", "receive", "reduce", "give", "copy", "collect", "sum"};  // in the order of Step::Kind
constexpr const char* kSigns[] = {"→", "←", "+", "→", "=", "+", "Σ"};

/// "→1 [6,7)"
std::string cell(const Step& step) {
  const std::string who = fmt::format("{}{}", kSigns[static_cast<int>(step.kind)], step.peer);
  return step.range.size() == 0 ? who : fmt::format("{} [{},{})", who, step.range.begin, step.range.end);
}

/// One row per round, one column per rank; the steps of a round are stacked in its row.
std::string table(const std::vector<Steps>& lists, int rounds) {
  int width = observe::columns(fmt::format("rank {}", lists.size() - 1));
  for (const Steps& steps : lists)
    for (const Step& step : steps) width = std::max(width, observe::columns(cell(step)));
  std::string out;
  const auto add_line = [&](const std::string& line) { out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n'; };
  std::string heads = "  round";
  for (std::size_t rank = 0; rank < lists.size(); ++rank) heads += "  " + observe::fit(fmt::format("rank {}", rank), width);
  add_line(heads);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::string>> columns;
    std::size_t lines = 1;
    for (const Steps& steps : lists) {
      auto& column = columns.emplace_back();
      for (const Step& step : steps)
        if (step.round == round) column.push_back(cell(step));
      lines = std::max(lines, column.size());
    }
    for (std::size_t line = 0; line < lines; ++line) {
      std::string text = line == 0 ? fmt::format("  {:>5}", round) : std::string(7, ' ');
      for (const auto& column : columns) text += "  " + observe::fit(line < column.size() ? column[line] : "", width);
      add_line(text);
    }
  }
  return out;
}

/// The most elements that the ranks of one host send to other hosts.
std::int64_t most_across(const std::vector<Steps>& lists, int per_host) {
  std::vector<std::int64_t> leaves(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (const Step& step : lists[rank]) {
      const auto host = rank / static_cast<std::size_t>(per_host);
      if (step.leaves() && host != static_cast<std::size_t>(step.peer / per_host)) leaves[host] += step.range.size();
    }
  return std::ranges::max(leaves);
}

/// The formulas' view: for each number, the maximum over all ranks.
Counts most_of(const std::vector<Steps>& lists) {
  Counts most;
  for (const Steps& steps : lists) {
    const Counts counts = schedule::count(steps);
    most = {std::max(most.rounds, counts.rounds), std::max(most.sent, counts.sent), std::max(most.reduced, counts.reduced)};
  }
  return most;
}

/// How comm executes the steps with these hosts, and which other layout of hosts would change that.
std::string how_it_runs(const Algorithm& algorithm, Problem problem) {
  const schedule::Lowering& lowering = algorithm.lowering;
  if (lowering && lowering.covers(problem)) return fmt::format("in one pass, where the ranks of a host share memory: {}", lowering.help);
  std::string text = "step by step, as messages";
  for (problem.per_host = problem.size; lowering && problem.per_host > 0; --problem.per_host)
    if (lowering.covers(problem)) return text + fmt::format("; with --per-host {} in one pass: {}", problem.per_host, lowering.help);
  return text;
}

ordered_json to_json(const std::vector<Steps>& lists) {
  ordered_json ranks = ordered_json::array();
  for (const Steps& steps : lists) {
    ordered_json& rank = ranks.emplace_back(ordered_json::array());
    for (const Step& step : steps)
      rank.push_back({{"round", step.round},
                      {"kind", kNames[static_cast<int>(step.kind)]},
                      {"peer", step.peer},
                      {"begin", step.range.begin},
                      {"end", step.range.end}});
  }
  return ranks;
}

bool is_pipeline(std::string_view key) {
  return std::ranges::any_of(schedule::pipelines(), [&](const auto& row) { return row.key == key; });
}

/// An unknown key is compared with the keys of both tables, for the suggestion.
void require_known(std::string_view key) {
  std::vector<std::string_view> keys;
  for (const auto& row : schedule::algorithms()) keys.push_back(row.key);
  for (const auto& row : schedule::pipelines()) keys.push_back(row.key);
  if (std::ranges::find(keys, key) == keys.end()) throw ConfigError(unknown_message("algorithm", key, keys));
}

/// Refuses options that do not apply to what the key names.
void refuse_any_of(const std::vector<const CLI::Option*>& options, const std::string& key, const char* kind) {
  for (const CLI::Option* option : options)
    if (option->count() > 0)
      throw ConfigError(
          fmt::format("{} does not apply to '{}', which is {}; leave it out (paceline algorithm --help)", option->get_name(), key, kind));
}

/// What is printed: one of the two.
struct Shown {
  ordered_json document;
  std::string text;
};

Shown describe_algorithm(const AlgorithmFlags& flags, observe::ElapsedLine& line) {
  Problem problem = problem_of(flags);
  const auto& row = schedule::algorithm_for(flags.key, problem.collective);
  const Counts formula = row.make.formula(problem);
  std::vector<Steps> lists;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    line.say(fmt::format("rank {} of {}", problem.rank + 1, problem.size));
    lists.push_back(row.make.steps(problem));
  }
  line.say("");
  const Counts counted = most_of(lists);
  const std::int64_t across = most_across(lists, problem.per_host);
  if (!flags.svg.empty()) write_atomically(flags.svg, schedule::drawing(row.key, problem));

  if (flags.json)
    return {{{"algorithm", row.key},
             {"help", row.help},
             {"offers", offers(row.make)},
             {"collective", flags.collective},
             {"ranks", problem.size},
             {"count", problem.count},
             {"root", problem.root},
             {"per_host", problem.per_host},
             {"chunks", problem.chunks},
             {"formula", to_json(formula)},
             {"counted", to_json(counted)},
             {"across", across},
             {"lowered", row.make.lowering && row.make.lowering.covers(problem)},
             {"runs", how_it_runs(row.make, problem)},
             {"steps", to_json(lists)}},
            {}};
  const auto numbers = [](const char* name, const Counts& counts) {
    return fmt::format("  {:<10}{}; a rank sends {} and reduces {}\n", name, observe::plural(counts.rounds, "round"),
                       observe::plural(counts.sent, "element"), observe::plural(counts.reduced, "element"));
  };
  std::string text = fmt::format("  {} - {}\n  offers {}\n\n", row.key, row.help, fmt::join(offers(row.make), ", "));
  text += fmt::format("  {} of {} by {}, {} per host, {}; the most that any rank does:\n", flags.collective,
                      observe::plural(problem.count, "element"), observe::plural(problem.size, "rank"), problem.per_host,
                      observe::plural(problem.chunks, "chunk"));
  text += numbers("formula", formula) + numbers("counted", counted);
  if (problem.per_host > 1 && problem.per_host < problem.size)
    text += fmt::format("  {:<10}a host sends {} to other hosts\n", "across", observe::plural(across, "element"));
  text += fmt::format("  {:<10}{}\n", "runs", how_it_runs(row.make, problem));
  text += fmt::format("\n{}\n  →1 sent to rank 1   ←1 from it, kept   +1 from it, added", table(lists, counted.rounds));
  text += problem.collective == Collective::all_to_all ? "   =1 rank 1's own part\n" : "\n";
  if (!flags.svg.empty()) text += fmt::format("\n  wrote {}\n", flags.svg);
  return {{}, text};
}

int show_algorithm(const AlgorithmFlags& flags) {
  const Shown shown = observe::patiently("listing the steps", [&](observe::ElapsedLine& line) { return describe_algorithm(flags, line); });
  if (flags.json) print_json(shown.document);
  else std::cout << shown.text;
  return kDone;
}

}  // namespace

Action add_algorithm(CLI::App& app) {
  auto flags = std::make_shared<AlgorithmFlags>();
  app.add_option("KEY", flags->key,
                 "one of `paceline list collectives` or `paceline list pipelines` (default: list all of them with their costs)");
  const CLI::Option* root = app.add_option("--root", flags->root, "rank that sends a broadcast or receives a reduce")
                                ->capture_default_str()
                                ->check(whole_number(0));
  const std::vector<const CLI::Option*> of_collectives = {
      app.add_option("--collective", flags->collective, "allreduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or barrier")
          ->check(known_values(collective_names()))
          ->capture_default_str(),
      app.add_option("-n,--ranks", flags->ranks, "number of ranks")->capture_default_str()->check(whole_number(1)),
      app.add_option("--count", flags->count, "elements of the buffer (default: a few, divisible among the ranks)")->check(whole_number(1)),
      root,
      app.add_option("--per-host", flags->per_host, "ranks per host, for hierarchical")->capture_default_str()->check(whole_number(1))};
  const auto* chunks = app.add_option("--chunks", flags->chunks,
                                      "pieces that a message is cut into, which follow each other through a tree or chain; for "
                                      "interleaved_1f1b: parts of the model per rank")
                           ->capture_default_str()
                           ->check(whole_number(1));
  const std::vector<const CLI::Option*> of_pipelines = {
      app.add_option("--stages", flags->pipeline.stages, "stages of the pipeline")->capture_default_str()->check(whole_number(1)),
      app.add_option("--micro-batches", flags->pipeline.micro_batches, "micro-batches per step")
          ->capture_default_str()
          ->check(whole_number(1)),
      app.add_option("--costs", flags->pipeline.costs,
                     "cost of a micro-batch on a stage: forward, input gradients, weight gradients, for example 1,1.2,0.8")
          ->type_name(kNumberList)
          ->delimiter(',')
          ->expected(3),
      app.add_option("--transfer", flags->pipeline.transfer, "cost of a message between stages, in the unit of --costs")};
  app.add_option("--svg", flags->svg, "draw the algorithm as SVG to this file")->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline algorithm", "paceline algorithm ring --ranks 4", "paceline algorithm tree --collective broadcast --chunks 4",
                     "paceline algorithm hierarchical --ranks 8 --per-host 4 --svg hierarchical.svg",
                     "paceline algorithm butterfly --ranks 6 --json", "paceline algorithm 1f1b --stages 4 --micro-batches 8",
                     "paceline algorithm interleaved_1f1b --chunks 4 --svg interleaved.svg",
                     "paceline algorithm zero_bubble --costs 1,1.2,0.8 --transfer 0.1"});
  return [=] {
    if (chunks->count() > 0) flags->pipeline.chunks = static_cast<int>(std::min<std::int64_t>(flags->chunks, 1 << 20));
    if (is_pipeline(flags->key)) {
      refuse_any_of(of_collectives, flags->key, "a pipeline schedule");
      return show_pipeline(flags->key, flags->pipeline, flags->svg, flags->json);
    }
    if (!flags->key.empty()) {
      require_known(flags->key);
      refuse_any_of(of_pipelines, flags->key, "a collective algorithm");
      if (root->count() > 0 && flags->collective != "broadcast" && flags->collective != "reduce")
        throw ConfigError(fmt::format("--root applies to broadcast and reduce, not to {}; leave it out", flags->collective));
      return show_algorithm(*flags);
    }
    if (!flags->svg.empty())
      throw ConfigError("--svg draws one algorithm; name it, for example: paceline algorithm ring --svg " + flags->svg);
    return list_algorithms(*flags);
  };
}

}  // namespace paceline::cli

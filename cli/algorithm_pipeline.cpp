#include "algorithm_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/files.h"
#include "paceline/launch/output.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/terminal.h"
#include "paceline/schedule/pipeline_drawing.h"
#include "paceline/schedule/pipeline_play.h"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;
using observe::Ink;
using schedule::PipelineCosts;
using schedule::PipelinePlay;
using schedule::PipelineProblem;
using schedule::PipelineStep;
using schedule::TimedStep;
using Row = Entry<schedule::PipelineSchedule>;

constexpr int kMostPipelineSteps = 1 << 18, kMostColumns = 4096;

PipelineProblem problem_of(const Row& row, const PipelineFlags& flags) {
  const int chunks = flags.chunks > 0 ? flags.chunks : row.make.interleaved ? 2 : 1;
  if (std::int64_t{flags.stages} * flags.micro_batches > kMostPipelineSteps / chunks)
    throw ConfigError(
        fmt::format("--stages {} with --micro-batches {} and {} makes too long a list of steps; their product must be at most {}",
                    flags.stages, flags.micro_batches, observe::plural(chunks, "chunk"), observe::show_count(kMostPipelineSteps)));
  return {.stages = flags.stages, .micro_batches = flags.micro_batches, .chunks = chunks};
}

PipelineCosts costs_of(const PipelineFlags& flags) {
  const bool positive = std::ranges::all_of(flags.costs, [](double cost) { return std::isfinite(cost) && cost > 0; });
  if (flags.costs.size() != 3 || !positive || !std::isfinite(flags.transfer) || flags.transfer < 0)
    throw ConfigError(
        fmt::format("--costs {} --transfer {}: --costs needs three positive numbers (forward, input gradients, weight gradients), for "
                    "example --costs 1,1,1; --transfer must be 0 or more",
                    fmt::join(flags.costs, ","), flags.transfer));
  return {flags.costs[0], flags.costs[1], flags.costs[2]};
}

char letter(PipelineStep::Kind kind) {
  return kind == PipelineStep::Kind::forward ? 'F' : kind == PipelineStep::Kind::weight_gradients ? 'W' : 'B';
}
Ink ink(PipelineStep::Kind kind) {
  return kind == PipelineStep::Kind::forward ? Ink::accent : kind == PipelineStep::Kind::weight_gradients ? Ink::warn : Ink::good;
}

std::string micro_batches(int count) { return observe::show_count(count) + (count == 1 ? " micro-batch" : " micro-batches"); }

/// "F3"; with several chunks, "F3b".
std::string label(const PipelineStep& step, int chunks) {
  std::string text = fmt::format("{}{}", letter(step.kind), step.micro_batch);
  if (chunks > 1 && chunks <= 26) text += static_cast<char>('a' + step.chunk);
  else if (chunks > 1) text += fmt::format(".{}", step.chunk);
  return text;
}

/// One row per stage; a column is as wide as the shortest step.
std::string timeline(const PipelinePlay& play, const PipelineProblem& problem, bool color) {
  double unit = play.makespan;
  int width = 1;
  for (const auto& rank : play.ranks)
    for (const TimedStep& timed : rank) {
      unit = std::min(unit, timed.end - timed.begin);
      width = std::max(width, observe::columns(label(timed.step, problem.chunks)));
    }
  if (play.makespan / unit * (width + 1) > kMostColumns)
    return fmt::format("  a timeline of {:.4g} units is too wide to show; --json has it\n", play.makespan / unit);
  const auto column = [&](double time) { return static_cast<int>(std::lround(time / unit)) * (width + 1); };
  std::string out;
  for (std::size_t rank = 0; rank < play.ranks.size(); ++rank) {
    out += observe::fit(fmt::format("  stage {}", rank), 10);
    int at = 0;
    const auto idle_until = [&](int end) {
      std::string dots;
      for (int x = at; x < end; ++x) dots += x % (width + 1) == width ? " " : "·";
      if (!dots.empty()) out += observe::paint(dots, Ink::dim, color);
      at = std::max(at, end);
    };
    for (const TimedStep& timed : play.ranks[rank]) {
      idle_until(column(timed.begin));
      const std::string text = label(timed.step, problem.chunks);
      const int room = std::max(column(timed.end) - at, width + 1);
      std::string cell = text;
      if (room > width + 1) cell += observe::repeat("─", room - 1 - observe::columns(text));
      out += observe::paint(cell, ink(timed.step.kind), color) + std::string(static_cast<std::size_t>(room - observe::columns(cell)), ' ');
      at += room;
    }
    idle_until(column(play.makespan));
    out = out.substr(0, out.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

ordered_json to_json(const std::optional<schedule::PipelineMessage>& message) {
  if (!message) return nullptr;
  return {{"peer", message->peer}, {"border", message->border}, {"what", message->gradients ? "gradients" : "activations"}};
}

ordered_json steps_json(const PipelinePlay& play, const PipelineProblem& problem) {
  ordered_json ranks = ordered_json::array();
  for (int rank = 0; rank < problem.stages; ++rank) {
    ordered_json& list = ranks.emplace_back(ordered_json::array());
    for (const TimedStep& timed : play.ranks[static_cast<std::size_t>(rank)])
      list.push_back({{"kind", name_of(timed.step.kind)},
                      {"micro_batch", timed.step.micro_batch},
                      {"chunk", timed.step.chunk},
                      {"begin", timed.begin},
                      {"end", timed.end},
                      {"receives", to_json(received(problem, rank, timed.step))},
                      {"sends", to_json(sent(problem, rank, timed.step))}});
  }
  return ranks;
}

std::vector<int> in_flight_by_formula(const Row& row, const PipelineProblem& problem) {
  std::vector<int> most;
  for (int rank = 0; rank < problem.stages; ++rank) most.push_back(row.make.in_flight(problem, rank));
  return most;
}

std::string explain(const Row& row, const PipelineProblem& problem, const PipelineFlags& flags, const PipelinePlay& play, double formula,
                    bool color) {
  std::string text = fmt::format("  {} - {}\n\n", row.key, row.help);
  text += fmt::format("  {}, {}{}; per micro-batch and stage: forward costs {:g}, input gradients {:g}, weight gradients {:g}{}\n",
                      observe::plural(problem.stages, "stage"), micro_batches(problem.micro_batches),
                      problem.chunks > 1 ? fmt::format(", {} chunks per rank", problem.chunks) : "", flags.costs[0], flags.costs[1],
                      flags.costs[2], flags.transfer > 0 ? fmt::format(", a transfer {:g}", flags.transfer) : "");
  text += fmt::format("  {:<12}{:.4g}, of which {} is bubble\n", "takes", play.makespan, observe::show_percent(play.bubble, 2));
  text += fmt::format("  {:<12}{} of bubble, if all stages cost the same and transfers are free\n", "formula",
                      observe::show_percent(formula, 2));
  text += fmt::format("  {:<12}{} in flight at most, by stage\n", "activations", fmt::join(play.in_flight, " "));
  text += fmt::format("  {:<12}{} between ranks\n\n", "messages", observe::show_count(play.messages));
  text += timeline(play, problem, color);
  text += fmt::format("\n  F3 forward of micro-batch 3   B3 back   {}· idle{}\n",
                      schedule::puts_off_weights(row.make, problem.chunks) ? "W3 its weight gradients   " : "",
                      problem.chunks > 1 ? "   a, b, … the chunk" : "");
  return text;
}

}  // namespace

int show_pipeline(const std::string& key, const PipelineFlags& flags, const std::string& svg, bool json) {
  const Row& row = find(schedule::pipelines(), "pipeline schedule", key);
  const PipelineProblem problem = problem_of(row, flags);
  const PipelineCosts costs = costs_of(flags);
  const PipelinePlay play =
      observe::patiently("replaying the pipeline", [&] { return schedule::play(row, problem, costs, flags.transfer); });
  const double formula = bubble_share(row.make, problem, costs);
  if (!svg.empty())
    observe::patiently("drawing " + svg, [&] { write_atomically(svg, schedule::pipeline_drawing(row, problem, costs, flags.transfer)); });
  if (json) {
    print_json({{"pipeline", row.key},
                {"help", row.help},
                {"stages", problem.stages},
                {"micro_batches", problem.micro_batches},
                {"chunks", problem.chunks},
                {"costs",
                 {{"forward", costs.forward},
                  {"input_gradients", costs.input_gradients},
                  {"weight_gradients", costs.weight_gradients},
                  {"transfer", flags.transfer}}},
                {"makespan", play.makespan},
                {"bubble", play.bubble},
                {"in_flight", play.in_flight},
                {"messages", play.messages},
                {"formula", {{"bubble", formula}, {"in_flight", in_flight_by_formula(row, problem)}}},
                {"steps", steps_json(play, problem)}});
    return kDone;
  }
  std::cout << explain(row, problem, flags, play, formula, launch::Display::of_descriptor(STDOUT_FILENO).color);
  if (!svg.empty()) std::cout << fmt::format("\n  wrote {}\n", svg);
  return kDone;
}

std::string list_pipelines(const PipelineFlags& flags) {
  std::string text = fmt::format("pipelines of {}, {}:\n", observe::plural(flags.stages, "stage"), micro_batches(flags.micro_batches));
  for (const Row& row : schedule::pipelines()) {
    PipelineFlags own = flags;
    own.chunks = 0;
    const PipelineProblem problem = problem_of(row, own);
    text += fmt::format("\n  {:<20}{}\n  {:20}{} of bubble; at most {} in flight on a rank\n", row.key, row.help, "",
                        observe::show_percent(bubble_share(row.make, problem, costs_of(flags)), 2),
                        micro_batches(std::ranges::max(in_flight_by_formula(row, problem))));
  }
  return text;
}

}  // namespace paceline::cli

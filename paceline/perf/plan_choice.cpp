// A plan in words: its choice as settings of a recipe and as a title, and its bottleneck.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "paceline/perf/plan.h"

namespace paceline::perf {

std::vector<std::string> settings_of(const Choice& choice) {
  const schedule::ProgramSettings& program = choice.program;
  std::vector<std::string> words = {fmt::format("strategy.name=\"{}\"", choice.strategy)};
  const auto add = [&](bool wanted, const std::string& word) {
    if (wanted) words.push_back(word);
  };
  add(!choice.together, fmt::format("parallel.workers={}", choice.workers()));
  add(choice.together, fmt::format("parallel.data={}", program.data));
  add(choice.together, fmt::format("parallel.pipeline={}", program.pipeline));
  add(choice.together, fmt::format("parallel.tensor={}", program.tensor));
  add(choice.sequence, "parallel.sequence=true");
  add(choice.hybrid != "none", fmt::format("parallel.hybrid=\"{}\"", choice.hybrid));
  add(program.zero > 0, fmt::format("parallel.zero={}", program.zero));
  add(program.pipeline > 1, fmt::format("parallel.schedule=\"{}\"", program.schedule));
  add(program.pipeline > 1 && program.chunks > 1, fmt::format("parallel.chunks={}", program.chunks));
  add(choice.cut_gb > 0, fmt::format("train.memory_gb={}", choice.cut_gb));
  add(choice.together, fmt::format("train.micro_batches={}", program.micro_batches));
  add(program.recompute != "none", fmt::format("train.recompute=\"{}\"", program.recompute));
  add(choice.together && program.data > 1, fmt::format("strategy.bucket_mb={}", static_cast<double>(program.bucket_bytes) / (1 << 20)));
  add(choice.together && program.data > 1, fmt::format("strategy.overlap=\"{}\"", program.overlap ? "on" : "off"));
  add(choice.together && program.data > 1 && program.zero == 0,
      fmt::format("strategy.update=\"{}\"", program.sharded_update ? "sharded" : "whole"));
  add(choice.compression != "none", fmt::format("comm.compression=\"{}\"", choice.compression));
  add(choice.rounds(), "comm.gradient_dtype=\"bf16\"");
  return words;
}

std::string title_of(const Choice& choice) {
  const schedule::ProgramSettings& program = choice.program;
  std::vector<std::string> axes, words;
  const auto axis = [&](const char* name, int size) {
    if (size > 1) axes.push_back(fmt::format("{} {}", name, size));
  };
  axis("data", program.data), axis("pipeline", program.pipeline), axis("tensor", program.tensor);
  if (!choice.together) words.push_back(choice.strategy);
  if (choice.compression != "none") words.push_back(choice.compression);
  if (choice.rounds()) words.emplace_back("gradients in bf16");
  words.push_back(axes.empty() ? "one device" : fmt::format("{}", fmt::join(axes, " × ")));
  if (choice.sequence) words.emplace_back("shared positions");
  if (choice.hybrid != "none") words.emplace_back("shared fc layers");
  if (program.zero > 0) words.push_back(fmt::format("ZeRO {}", program.zero));
  if (program.pipeline > 1) words.push_back(program.schedule);
  if (program.micro_batches > 1) words.push_back(fmt::format("{} micro-batches", program.micro_batches));
  if (program.recompute != "none") words.push_back("recompute " + program.recompute);
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string Plan::bottleneck() const {
  if (cost.bottleneck != "compute" || gains.empty()) return cost.bottleneck;
  const Gain& best = *std::ranges::min_element(gains, {}, &Gain::seconds);
  return best.seconds < cost.seconds ? best.what : cost.bottleneck;
}

}  // namespace paceline::perf

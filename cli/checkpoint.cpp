// paceline checkpoint show | verify | convert
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/weights.h"

namespace paceline::cli {
namespace {

struct CheckpointFlags {
  std::string path, output, names = "pytorch";
  bool json = false, tensors = false, recipe = false;
};

/// A tensor, whose rows may be spread over several files.
struct ShownTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0, elements = 0;
};

std::vector<ShownTensor> whole_tensors(const train::Checkpoint& checkpoint) {
  std::vector<ShownTensor> tensors;
  for (const train::NamedTensor& item : checkpoint.tensors) {
    if (tensors.empty() || tensors.back().name != item.name) tensors.push_back({item.name, item.shape()});
    tensors.back().bytes += static_cast<std::int64_t>(item.tensor.nbytes()), tensors.back().elements += item.tensor.numel();
  }
  return tensors;
}

nlohmann::ordered_json describe(const std::filesystem::path& file, const train::Checkpoint& checkpoint) {
  const train::Position& p = checkpoint.position;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const ShownTensor& tensor : whole_tensors(checkpoint))
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
  return {{"file", file.string()},
          {"network", checkpoint.network},
          {"step", p.step},
          {"epoch", p.epoch},
          {"batch", p.batch},
          {"samples", p.samples},
          {"seconds", p.seconds},
          {"state_hash", train::state_hash(checkpoint.tensors)},
          {"recipe", checkpoint.recipe},
          {"class_names", checkpoint.class_names},
          {"tensors", tensors}};
}

/// "3 epochs done", or "2 epochs done, up to batch 12 of the next".
std::string progress(const train::Position& position) {
  const std::string epochs = observe::plural(position.epoch, "epoch") + " done";
  return position.batch == 0 ? epochs : fmt::format("{}, up to batch {} of the next", epochs, position.batch);
}

/// Bytes by the first component of the tensors' names: "model", "optim", …
std::vector<std::pair<std::string, std::int64_t>> bytes_by_kind(const std::vector<ShownTensor>& tensors) {
  std::vector<std::pair<std::string, std::int64_t>> kinds;
  for (const ShownTensor& tensor : tensors) {
    const std::string kind = tensor.name.substr(0, tensor.name.find('.'));
    auto found = std::ranges::find(kinds, kind, &std::pair<std::string, std::int64_t>::first);
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, 0});
    found->second += tensor.bytes;
  }
  return kinds;
}

/// Reads and checks all of a checkpoint, which takes a while for a large one.
auto read_newest(const std::string& path) {
  return observe::patiently("reading " + path, [&] { return train::newest_good_checkpoint(path); });
}

/// The keys of a recipe whose values are not the defaults, by section. The whole recipe if it is of another program, with keys or values of
/// its own.
std::string changed_keys(const std::string& recipe, const std::string& source) {
  train::Recipe saved, usual;
  Config config = saved.config();
  const Config defaults = usual.config();
  try {
    config.load_text(recipe, source);
  } catch (const ConfigError&) {
    return recipe;
  }
  std::string text;
  std::size_t shown = 0, all = 0;
  auto other = defaults.sections().begin();
  for (const Section& section : config.sections()) {
    std::string lines;
    auto field_default = (other++)->fields().begin();
    for (const Field& field : section.fields()) {
      ++all;
      if (field.toml() == (field_default++)->toml()) continue;
      lines += fmt::format("{} = {}\n", field.key(), field.toml());
      ++shown;
    }
    if (!lines.empty()) text += fmt::format("[{}]\n{}\n", section.name(), lines);
  }
  return text + fmt::format("# {} of {} keys, whose values are not the defaults; all of them: --recipe\n", shown, all);
}

int show(const CheckpointFlags& flags) {
  const auto [file, checkpoint] = read_newest(flags.path);
  const train::Checkpoint& read = checkpoint;  // lambdas cannot capture parts of a pair
  const std::filesystem::path& from = file;
  const auto document = observe::patiently("hashing " + flags.path, [&] { return describe(from, read); });
  if (flags.json) {
    print_json(document);
    return kDone;
  }
  std::int64_t elements = 0, bytes = 0;
  const std::vector<ShownTensor> tensors = whole_tensors(checkpoint);
  for (const ShownTensor& tensor : tensors) {
    bytes += tensor.bytes;
    if (tensor.name.starts_with("model.")) elements += tensor.elements;
  }
  const auto line = [](const char* name, const std::string& text) { std::cout << fmt::format("  {:<12}{}\n", name, text); };
  const train::Position& position = checkpoint.position;
  std::cout << file.string() << '\n';
  line("network", fmt::format("{}, {} parameters and running statistics", checkpoint.network, elements));
  line("trained",
       fmt::format("{} steps ({}), {} samples in {:.1f} s", position.step, progress(position), position.samples, position.seconds));
  line("size", fmt::format("{:.1f} MB in {}", static_cast<double>(bytes) / 1e6,
                           observe::plural(static_cast<std::int64_t>(tensors.size()), "tensor")));
  for (const auto& [kind, sum] : bytes_by_kind(tensors)) line("", fmt::format("{:.1f} MB {}", static_cast<double>(sum) / 1e6, kind));
  line("state hash", document["state_hash"].get<std::string>());
  if (!checkpoint.class_names.empty()) line("classes", fmt::format("{}", fmt::join(checkpoint.class_names, ", ")));
  if (flags.recipe || !flags.tensors)
    std::cout << "\n" << (flags.recipe ? checkpoint.recipe : changed_keys(checkpoint.recipe, file.string()));
  if (!flags.tensors) return kDone;
  std::cout << "\n";
  for (const ShownTensor& tensor : tensors)
    std::cout << fmt::format("  {:<52} {:>20}\n", tensor.name, tensor.shape.empty() ? "scalar" : graph::to_string(tensor.shape));
  return kDone;
}

/// Reads every checkpoint of a run and compares its checksums; exit code 1 if one is damaged.
int verify(const CheckpointFlags& flags) {
  const auto files = train::list_checkpoints(flags.path);
  if (files.empty()) throw DataError(flags.path, "no checkpoint found; name a run folder or a checkpoint");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  bool all_good = true;
  for (const auto& file : files) {
    std::string problem;
    try {
      observe::patiently("reading " + file.string(), [&] { return train::read_checkpoint(file); });
    } catch (const train::NotACheckpoint&) {
      throw;  // reading failed for another reason than damage
    } catch (const DataError& error) {
      problem = error.what();
    }
    all_good = all_good && problem.empty();
    rows.push_back({{"file", file.string()}, {"good", problem.empty()}, {"problem", problem}});
    if (!flags.json) std::cout << (problem.empty() ? "good     " + file.string() : "DAMAGED  " + problem) << '\n';
  }
  if (flags.json) print_json({{"good", all_good}, {"checkpoints", rows}});
  return all_good ? kDone : kFailed;
}

/// Throws ConfigError if the output would overwrite a file of the run that it is converted from, even through a link. Weights may be
/// written next to the run's files, and overwritten.
void refuse_own_files(const std::filesystem::path& checkpoint, const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code none;
  const auto real = [&](const fs::path& path) { return fs::weakly_canonical(fs::absolute(path, none), none); };
  const auto lies_in = [](const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  };
  const fs::path target = real(output), from = real(checkpoint), folder = from.parent_path(), run = folder.parent_path();
  const bool of_run = folder.filename() == "checkpoints";
  if (target == from || (of_run && lies_in(target, folder)))
    throw ConfigError(fmt::format("{} is in the folder of the checkpoint that it is converted from; write it to another folder", output));
  const bool weights = target.parent_path() == run && target.extension() == ".safetensors";
  if (of_run && lies_in(target, run) && !weights && fs::is_regular_file(target, none))
    throw ConfigError(fmt::format("{} is a file of the run itself; name another file", output));
}

int convert(const CheckpointFlags& flags) {
  const auto found = read_newest(flags.path);
  const auto& [file, checkpoint] = found;
  refuse_own_files(file, flags.output);
  const bool gpt2 = flags.names == "gpt2";
  const train::Names names = gpt2 ? train::Names::gpt2 : train::Names::pytorch;
  const std::int64_t bytes = observe::patiently(
      "writing " + flags.output, [&] { return train::export_weights(found.second, flags.output, train::kLargestWeights, names); });
  if (flags.json) print_json({{"from", file.string()}, {"to", flags.output}, {"bytes", bytes}});
  else
    std::cout << fmt::format("{} → {} ({:.1f} MB of weights under {} names)\n", file.string(), flags.output,
                             static_cast<double>(bytes) / 1e6, gpt2 ? "GPT-2's" : "PyTorch's");
  return kDone;
}

}  // namespace

Action add_checkpoint(CLI::App& app) {
  app.require_subcommand(1);
  auto flags = std::make_shared<CheckpointFlags>();
  auto chosen = std::make_shared<int (*)(const CheckpointFlags&)>(nullptr);
  const auto add = [&](const char* name, const char* help, int (*run)(const CheckpointFlags&)) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_option("PATH", flags->path, "a run folder (its newest intact checkpoint is used) or a checkpoint")->required();
    add_json_flag(*sub, flags->json);
    sub->callback([chosen, run] { *chosen = run; });
    return sub;
  };
  CLI::App* shows = add("show", "a checkpoint's summary and what its recipe changes, its whole recipe, or its tensors", show);
  shows->add_flag("--recipe", flags->recipe, "print the whole recipe, not only the keys that differ from the defaults");
  shows->add_flag("--tensors", flags->tensors, "list the names and shapes of its tensors instead of the recipe");
  add_examples(*shows, {"paceline checkpoint show runs/demo", "paceline checkpoint show --recipe runs/demo",
                        "paceline checkpoint show --tensors runs/demo"});
  add_examples(*add("verify", "verify every checksum of a checkpoint", verify), {"paceline checkpoint verify runs/demo"});
  CLI::App* sub = add("convert", "write the weights as safetensors under PyTorch's names", convert);
  sub->add_option("OUTPUT", flags->output, "the file to write; if it ends with /, a folder with files of at most 5 GB and an index")
      ->required();
  sub->add_option("--names", flags->names, "pytorch, or gpt2: the names and transposed weights of Hugging Face's GPT-2, for network gpt")
      ->check(CLI::IsMember({"pytorch", "gpt2"}))
      ->capture_default_str();
  add_examples(*sub, {"paceline checkpoint convert runs/demo weights.safetensors",
                      "paceline checkpoint convert runs/gpt gpt2.safetensors --names gpt2",
                      "python3 -c 'from safetensors.torch import load_file; model.load_state_dict(load_file(\"weights.safetensors\"))'"});
  add_examples(app, {"paceline checkpoint show runs/demo", "paceline checkpoint verify runs/demo",
                     "paceline checkpoint convert runs/demo weights.safetensors"});
  return [flags, chosen] { return (*chosen)(*flags); };
}

}  // namespace paceline::cli

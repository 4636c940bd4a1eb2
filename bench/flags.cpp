#include "flags.h"

#include <fmt/format.h>

#include "names.h"

namespace paceline::bench {
namespace {

constexpr std::int64_t kMostRanks = 4096, kMostElements = std::int64_t{1} << 31;  // beyond them one waits long, and for an error

}  // namespace

std::shared_ptr<Flags> add_flags(CLI::App& app) {
  using namespace program;
  auto flags = std::make_shared<Flags>();
  std::string names;
  for (const auto& row : kNames) names += fmt::format("{}  {:<14} {}", "\n", row.key, row.help);
  app.add_option("NAME", flags->name, "which:" + names)->required();
  app.add_option("--threads", flags->options.threads, "threads per worker; 0: OMP_NUM_THREADS, else all usable cores")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--rounds", flags->options.rounds, "number of measurements, whose median is reported")
      ->capture_default_str()
      ->check(whole_number(1));
  app.add_option("--networks", flags->options.networks, "networks, separated by commas, for step, train and overlap")->type_name(kNameList);
  app.add_option("--batch", flags->options.batch, "samples per worker; 0: the benchmark's default")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--device", flags->options.device, "device to measure: cpu or cuda")
      ->check(known_values({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--precision", flags->options.precision, "fp32, tf32 or bf16")
      ->check(known_values({"fp32", "tf32", "bf16"}))
      ->capture_default_str();
  app.add_option("--root", flags->options.root, "folder of a dataset, for data")->type_name(kFolder);
  app.add_option("--python", flags->options.python,
                 "Python of the peers (default: the first of python3 and /usr/bin/python3 that has PyTorch)")
      ->type_name(kFile);
  app.add_option("-n,--ranks", flags->options.ranks, "ranks of the collectives; workers of train")
      ->capture_default_str()
      ->check(whole_number(1, kMostRanks));
  app.add_option("--engines", flags->options.engines, "engines, separated by commas, of the collectives and train")
      ->type_name(kNameList)
      ->capture_default_str();
  app.add_option("--algorithms", flags->options.algorithms,
                 "algorithms, separated by commas; each except auto is also compared with its formula")
      ->type_name(kNameList);
  app.add_option("--sizes", flags->options.sizes,
                 "message sizes, separated by commas, for example 1024,64K,16M (default: 1 KiB to 256 MiB)")
      ->type_name("SIZE,...");
  app.add_option("--elements", flags->options.elements, "values of the gradient, for compress")
      ->capture_default_str()
      ->check(whole_number(1, kMostElements));
  app.add_option("--compressors", flags->options.compressors, "compressors to measure, separated by commas (default: all), for compress")
      ->type_name(kNameList);
  app.add_flag("--peers", flags->options.peers, "also measure Open MPI, MPICH and Gloo in the same run, where installed");
  app.add_option("--peer", flags->options.against,
                 "what to compare with. train: pytorch_ddp (the default); step: eager, graph and compile, separated by commas")
      ->check(known_values({"pytorch_ddp", "eager", "graph", "compile"}));
  app.add_flag("--no-peer", flags->no_peer, "measure only Paceline");
  app.add_option("--svg", flags->svg, "draw time by message size as SVG to this file, for the collectives")->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline bench optim", "paceline bench step --networks lenet5,resnet18 --threads 1",
                     "paceline bench step --device cuda --precision bf16 --networks resnet18 --batch 128",
                     "paceline bench step --device cuda --precision bf16 --networks gpt2,resnet50 --peer eager,compile",
                     "paceline bench train --peer pytorch_ddp", "paceline bench overlap --rounds 3",
                     "paceline bench data --root DIR --json", "paceline bench compress --compressors int8,topk,powersgd",
                     "paceline bench allreduce --ranks 2 --peers", "paceline bench allreduce --device cuda --ranks 2",
                     "paceline bench allreduce --ranks 4 --engines shm --algorithms ring,tree,butterfly --svg algorithms.svg"});
  return flags;
}

}  // namespace paceline::bench

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
  app.add_option("--threads", flags->options.threads, "0: OMP_NUM_THREADS, else all cores that it may use")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--rounds", flags->options.rounds, "measurements of which the median counts")
      ->capture_default_str()
      ->check(whole_number(1));
  app.add_option("--networks", flags->options.networks, "comma-separated, for step, train and overlap");
  app.add_option("--batch", flags->options.batch, "of a worker; 0: the benchmark's own")->capture_default_str()->check(whole_number(0));
  app.add_option("--device", flags->options.device, "cpu or cuda")->capture_default_str();
  app.add_option("--precision", flags->options.precision, "fp32, tf32 or bf16")->capture_default_str();
  app.add_option("--root", flags->options.root, "folder of a dataset, for data");
  app.add_option("--python", flags->options.python, "for peers; left out: the first of python3 and /usr/bin/python3 that has PyTorch");
  app.add_option("-n,--ranks", flags->options.ranks, "of allreduce and its kin; workers of train")
      ->capture_default_str()
      ->check(whole_number(1, kMostRanks));
  app.add_option("--engines", flags->options.engines, "comma-separated, of allreduce, its kin and train")->capture_default_str();
  app.add_option("--algorithms", flags->options.algorithms, "comma-separated; each but auto is also held against its formula");
  app.add_option("--sizes", flags->options.sizes, "comma-separated, as 1024, 64K or 16M; left out: 1 KiB to 256 MiB");
  app.add_option("--elements", flags->options.elements, "values of the gradient, for compress")
      ->capture_default_str()
      ->check(whole_number(1, kMostElements));
  app.add_option("--compressors", flags->options.compressors, "comma-separated; left out: all, for compress");
  app.add_flag("--peers", flags->options.peers, "measure Open MPI, MPICH and Gloo in the same run, those that are installed");
  app.add_option("--peer", flags->options.against,
                 "whom train is held against: pytorch_ddp, which is also the default; of step: eager, graph and compile, comma-separated");
  app.add_flag("--no-peer", flags->no_peer, "measure Paceline alone");
  app.add_option("--svg", flags->svg, "draw time by size into this file, of allreduce and its kin");
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

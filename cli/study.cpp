// paceline study ccgrid2019: the scalability study of the CCGRID 2019 slides, recomputed for any cluster.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"
#include "paceline/graph/registry.h"
#include "paceline/observe/elapsed_line.h"
#include "study_report.h"

namespace paceline::cli {
namespace {

struct StudyFlags {
  std::string study = "ccgrid2019", cluster = "skylake", networks, traffic = "mn", out;
  std::int64_t batch = 60;
  bool json = false, print_cluster = false;
};

void write_study(const perf::Study& study, const nlohmann::ordered_json& document, const std::filesystem::path& folder) {
  const std::vector<StudyFigure> figures = study_figures(study);
  for (const StudyFigure& figure : figures) write_atomically(folder / (figure.name + ".svg"), figure.svg);
  for (const char* table : kStudyTables) write_atomically(folder / fmt::format("{}.csv", table), csv_of(document[table]));
  write_atomically(folder / "study.json", document.dump(1) + "\n");
  write_atomically(folder / "index.html", study_page(study, figures));
}

int run_study(const StudyFlags& flags) {
  constexpr std::string_view kStudies[] = {"ccgrid2019"}, kTraffic[] = {"mn", "2mn"};
  if (flags.study != kStudies[0]) throw ConfigError(unknown_message("study", flags.study, kStudies));
  if (flags.traffic != kTraffic[0] && flags.traffic != kTraffic[1])
    throw ConfigError("--traffic: " + unknown_message("way to count", flags.traffic, kTraffic));
  perf::StudyOptions options{.cluster = perf::find_cluster(flags.cluster)};
  if (flags.print_cluster) {
    std::cout << to_toml(options.cluster);
    return kDone;
  }
  if (!flags.networks.empty()) options.networks = items_of(flags.networks);
  if (options.networks.empty()) throw ConfigError("--networks needs at least one name; `paceline list networks` lists them");
  options.batch = flags.batch;
  options.traffic = flags.traffic == "mn" ? perf::OutputTraffic::once : perf::OutputTraffic::twice;
  for (const std::string& network : options.networks) find(graph::networks(), "network", network);
  if (!flags.out.empty()) ensure_writable_folder(flags.out);
  const perf::Study study = observe::patiently("computing the study", [&] { return perf::run_ccgrid2019(std::move(options)); });
  const nlohmann::ordered_json document = study_json(study);
  if (!flags.out.empty()) write_study(study, document, flags.out);
  if (flags.json) print_json(document);
  else std::cout << study_text(study);
  if (!flags.out.empty() && !flags.json) std::cout << fmt::format("\n  figures, tables and a page: {}/index.html\n", flags.out);
  return kDone;
}

}  // namespace

Action add_study(CLI::App& app) {
  auto flags = std::make_shared<StudyFlags>();
  app.add_option("STUDY", flags->study, "ccgrid2019: roofline, collectives and overlap of four networks on 1,000 nodes")
      ->check(known_values({"ccgrid2019"}))
      ->required();
  app.add_option("--cluster", flags->cluster, "one of `paceline list clusters`, or a cluster file (default skylake)")
      ->type_name(kNameOrFile);
  app.add_option("--networks", flags->networks, "networks instead of the study's own four, separated by commas")->type_name(kNameList);
  app.add_option("--batch", flags->batch, "samples per process around which everything else is swept (default 60)")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--traffic", flags->traffic, "memory traffic of a product's output: mn counts it once, 2mn twice (default mn)")
      ->check(known_values({"mn", "2mn"}));
  app.add_option("--out", flags->out, "folder for figures (SVG), tables (CSV, JSON) and index.html, which shows them all")
      ->type_name(kFolder);
  app.add_flag("--print-cluster", flags->print_cluster, "print the cluster as a file to start from, and exit");
  add_json_flag(app, flags->json);
  add_examples(
      app, {"paceline study ccgrid2019 --out study", "paceline study ccgrid2019 --traffic 2mn --batch 10 --json",
            "paceline study ccgrid2019 --cluster h100 --networks resnet50,gpt",
            "paceline study ccgrid2019 --cluster p100 --print-cluster > cluster.toml", "paceline study ccgrid2019 --cluster cluster.toml"});
  return [flags] { return run_study(*flags); };
}

}  // namespace paceline::cli

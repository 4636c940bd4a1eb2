// paceline doctor: what this machine has, how fast it is, and what to fix.
#include <dlfcn.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/affinity.h"
#include "paceline/base/clock.h"
#include "paceline/comm/engine.h"
#include "paceline/measure/memory_bandwidth.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/tensor/device.h"
#include "paceline/version.h"

namespace paceline::cli {
namespace {

/// The shared library that computes LibTorch's matrix products, found among the files mapped into this process.
std::string blas_library() {
  std::ifstream maps("/proc/self/maps");
  std::string found = "unknown";
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    std::string path = line.substr(slash);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("libopenblas") || name.starts_with("libmkl_rt") || name.starts_with("libmkl_core")) return path;
    if (name.starts_with("libblas.so") || name.starts_with("libblis")) found = path;
  }
  return found;
}

/// Whether it is an OpenBLAS with threads of its own, instead of OpenMP's, which LibTorch uses.
bool has_threads_of_its_own() {
  constexpr int kPthreads = 1;
  const auto parallel = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  return parallel != nullptr && parallel() == kPthreads;
}

/// LibTorch's version. Debian's headers name an older one, so the installed package is asked first.
std::string libtorch_version() {
  const std::string headers = TORCH_VERSION, series = headers.substr(0, headers.rfind('.') + 1);
  std::ifstream packages("/var/lib/dpkg/status");
  bool of_libtorch = false;
  for (std::string line; std::getline(packages, line);) {
    if (line.starts_with("Package: ")) of_libtorch = line.starts_with("Package: libtorch");
    const std::string version = of_libtorch && line.starts_with("Version: ") ? line.substr(9) : "";
    if (version.starts_with(series)) return version.substr(0, version.find_first_of("+-"));
  }
  return headers;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

double median_seconds(int repeats, const std::function<void()>& work) {
  const SteadyClock clock;
  std::vector<double> times;
  work();
  for (int i = 0; i < repeats; ++i) {
    const Nanoseconds began = clock.now();
    work();
    times.push_back(seconds(clock.now() - began));
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<std::size_t>(repeats) / 2];
}

double product_gflops() {
  constexpr std::int64_t kSide = 1024;
  const at::Tensor a = at::rand({kSide, kSide}), b = at::rand({kSide, kSide});
  at::Tensor c = at::empty({kSide, kSide});
  return 2.0 * kSide * kSide * kSide / median_seconds(5, [&] { at::mm_out(c, a, b); }) / 1e9;
}

double convolution_gflops() {
  const at::Tensor x = at::rand({8, 64, 32, 32}), w = at::rand({64, 64, 3, 3});
  return 2.0 * 8 * 64 * 64 * 9 * 32 * 32 / median_seconds(5, [&] { at::conv2d(x, w, {}, 1, 1); }) / 1e9;
}

/// An engine that this build does not include: what it is for, and how to get it.
void advise_engine(std::vector<std::string>& advice, std::string_view key, const char* what) {
  if (std::ranges::find(comm::engines(), key, &Entry<comm::Engine>::key) == comm::engines().end())
    advice.push_back(fmt::format("built without {}", what));
}

int run_doctor(bool json) {
  const c10::Device cpu(c10::kCPU);
  tensor::configure_libtorch(cpu, tensor::Precision::fp32, 0, true);
  const std::string blas = blas_library();
  double product = 0, convolution = 0, bandwidth = 0;
  {
    observe::MeasuringLine line;
    line.say("matrix products");
    product = product_gflops();
    line.say("convolutions");
    convolution = convolution_gflops();
    line.say("memory");
    bandwidth = measure::memory_bandwidth_gb_per_s();
  }
  const bool has_cuda = tensor::cuda_available();

  std::vector<std::string> advice;
  // The reference BLAS gives about 2 GFLOP/s per core, a tuned one twenty or more.
  if (product / at::get_num_threads() < 10)
    advice.push_back(fmt::format("matrix products run at {:.0f} GFLOP/s: {}", product,
                                 blas.find("openblas") != std::string::npos
                                     ? "the BLAS itself is fast, so the machine is slow or busy; try again when it is idle"
                                     : "install OpenBLAS (apt-get install libopenblas0-openmp)"));
  if (has_threads_of_its_own())
    advice.emplace_back(
        "this OpenBLAS runs its own threads and is slow while other programs use the cores: apt-get install libopenblas0-openmp "
        "libopenblas0-pthread-");
#if !PACELINE_WITH_TOML
  advice.push_back("built without toml++: recipe files cannot be read (apt-get install libtomlplusplus-dev, build again)");
#endif
#if !PACELINE_WITH_JPEG
  advice.push_back("built without libjpeg: JPEG files cannot be read (apt-get install libjpeg62-turbo-dev, build again)");
#endif
#if !PACELINE_WITH_PNG
  advice.push_back("built without libpng: PNG files cannot be read (apt-get install libpng-dev, build again)");
#endif
  advise_engine(advice, "mpi", "MPI: mpirun and srun cannot connect hosts (apt-get install libopenmpi-dev openmpi-bin, build again)");
  advise_engine(advice, "gloo", "Gloo: hosts cannot be connected without MPI (apt-get install libgloo-dev, build again)");

  nlohmann::ordered_json document = {
      {"paceline", PACELINE_VERSION},
      {"libtorch", libtorch_version()},
      {"compiler", fmt::format("{}.{}", __GNUC__, __GNUC_MINOR__)},
      {"processor", processor()},
      {"cores", usable_cores()},
      {"threads", at::get_num_threads()},
      {"blas", blas},
      {"convolutions", tensor::onednn_pays() ? "oneDNN" : "im2col + BLAS"},
      {"product_gflops", product},
      {"convolution_gflops", convolution},
      {"memory_gb_per_s", bandwidth},
      {"devices", nlohmann::ordered_json::array({"cpu"})},
      {"engines", nlohmann::ordered_json::array()},
      {"advice", advice},
  };
  for (const auto& row : comm::engines()) document["engines"].push_back(row.key);
  if (has_cuda) document["devices"].push_back("cuda: " + tensor::device_name(c10::Device(c10::kCUDA, 0)));
  if (json) {
    print_json(document);
    return kDone;
  }
  for (const auto& [key, value] : document.items()) {
    if (key == "advice") continue;
    std::string text = value.is_number_float() ? fmt::format("{:.1f}", value.get<double>())
                       : value.is_string()     ? value.get<std::string>()
                                               : value.dump();
    std::cout << fmt::format("  {:<20} {}\n", key, text);
  }
  std::cout << (advice.empty() ? "\n  No problems found.\n" : "\n");
  for (const std::string& line : advice) std::cout << "  ! " << line << '\n';
  return kDone;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  add_json_flag(app, *json);
  add_examples(app, {"paceline doctor", "paceline doctor --json"});
  return [json] { return run_doctor(*json); };
}

}  // namespace paceline::cli

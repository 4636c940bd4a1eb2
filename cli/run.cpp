// paceline run: starts a program as many ranks. Takes the flags of torchrun and mpirun; the launcher itself is paceline/launch.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/helpers.h"
#include "command.h"
#include "paceline/base/affinity.h"
#include "paceline/base/clock.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/key_file.h"
#include "paceline/base/suggest.h"
#include "paceline/launch/launcher.h"
#include "paceline/launch/this_host.h"
#include "paceline/launch/variables.h"
#include "paceline/program/train_plan.h"

namespace paceline::cli {
namespace {

constexpr int kTorchrunPort = 29500;
constexpr double kLongest = 86400;  // seconds

struct RunFlags {
  int ranks = 0, servers = 0, workers = 0, node_rank = -1, port = 0, max_restarts = 0, only = -1;
  std::string per_node, nodes = "1", hosts, hostfile, address, endpoint, job, key_file, ssh = "ssh", log_dir, backend;
  std::vector<std::string> exported;
  bool standalone = false, no_prefix = false, no_python = false, json = false;
  double grace_s = 5, healthy_s = 300;
};

Nanoseconds duration_of(const char* flag, double seconds) {
  if (!(seconds >= 0 && seconds <= kLongest))  // this way round it refuses nan too
    throw ConfigError(fmt::format("{} {:g} is not between 0 and {:g} seconds", flag, seconds, kLongest));
  return std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(seconds));
}

launch::Machine this_machine() {
  int gpus = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", gpus))) ++gpus;
  return {usable_cores(), launch::is_this_host, gpus};
}

launch::Request request_of(const RunFlags& flags, const launch::Machine& machine) {
  launch::Request request;
  if (!flags.hosts.empty() && !flags.hostfile.empty()) throw ConfigError("-H and --hostfile both name hosts; give one of them");
  if (!flags.hosts.empty()) request.hosts = launch::parse_hosts(flags.hosts);
  if (!flags.hostfile.empty()) request.hosts = launch::read_hostfile(flags.hostfile);
  if (flags.ranks > 0) request.ranks = flags.ranks;
  request.servers = flags.servers;
  if (flags.workers > 0) request.workers = flags.workers;
  if (!flags.per_node.empty()) request.per_node = launch::parse_per_node(flags.per_node, machine);
  request.nodes = launch::parse_nodes(flags.nodes);
  if (flags.node_rank >= 0) request.node_rank = flags.node_rank;
  if (flags.standalone && (request.nodes > 1 || !request.hosts.empty()))
    throw ConfigError("--standalone means this host alone; leave out either it or the other hosts");
  return request;
}

/// The key of a job that several launchers start. All launchers need the same key, and it cannot be a flag, because other users can read
/// command lines.
std::string common_key(const RunFlags& flags) {
  const char* given = std::getenv("PACELINE_JOB");
  std::string key = !flags.key_file.empty() ? read_key(flags.key_file) : given != nullptr ? given : "";
  if (key.empty())
    throw ConfigError(
        "--nnodes: the launchers must share a key, which authenticates their ranks; give all of them --key-file FILE (chmod 600) "
        "or the same variable: export PACELINE_JOB=$(openssl rand -hex 16)");
  return flags.job.empty() ? key : fmt::format("{}.{}", key, flags.job);
}

/// The address of rank 0, if the user gives one. With several launchers it is required, because none of them knows the others.
void set_address(const RunFlags& flags, int nodes, launch::Job& job) {
  job.address = flags.address;
  job.port = flags.port;
  if (!flags.endpoint.empty()) {
    if (!flags.address.empty() || flags.port > 0)
      throw ConfigError("--rdzv-endpoint replaces --master-addr and --master-port; give one or the other");
    const auto colon = flags.endpoint.rfind(':');
    job.address = flags.endpoint.substr(0, colon);
    if (colon != std::string::npos) {
      std::string port = flags.endpoint.substr(colon + 1);
      const std::string problem = whole_number(0)(port);
      if (!problem.empty() || port.size() > 5 || std::stoi(port) > 65535)
        throw ConfigError(fmt::format("--rdzv-endpoint '{}' is not host:port", flags.endpoint));
      job.port = std::stoi(port);
    }
  }
  if (nodes == 1) return;
  if (job.address.empty()) throw ConfigError("--nnodes needs --master-addr: the address of the host with --node-rank 0");
  if (job.port == 0) job.port = kTorchrunPort;
  job.token = common_key(flags);
}

/// NAME with its value in this process, or NAME=VALUE. All PACELINE_… variables are passed on; those given here take precedence.
std::vector<std::string> exported(const std::vector<std::string>& asked) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (const std::string_view text = *variable; text.starts_with("PACELINE_") && !launch::set_by_launcher(text))
      variables.emplace_back(text);
  for (const std::string& word : asked) {
    const char* here = std::getenv(word.c_str());
    if (word.find('=') == std::string::npos && here == nullptr)
      throw ConfigError(fmt::format("-x {}: this variable is not set; give it a value: -x {}=…", word, word));
    launch::set_variable(variables, word.find('=') != std::string::npos ? word : word + "=" + here);
  }
  return variables;
}

/// `paceline` itself, if the user gave a recipe or one of its commands instead of a program.
std::vector<std::string> program_of(std::vector<std::string> words) {
  if (words.empty())
    throw ConfigError("no program to run; use `paceline run -np 2 -- PROGRAM ARGUMENTS…`, or `paceline run -np 2 -- train my.toml`");
  const bool recipe = words.front().ends_with(".toml");
  if (recipe) words.insert(words.begin(), "train");
  if (recipe || words.front() == "train" || words.front() == "bench") words.insert(words.begin(), bench::main_program());
  return words;
}

/// Rejects a recipe that cannot work once, here, instead of in every rank. If no rank runs on this host, the recipe's files need not exist
/// here.
void refuse_wrong_recipe(const launch::Job& job) {
  std::error_code ignored;
  const bool trains =
      job.program.size() > 1 && job.program[1] == "train" && std::filesystem::equivalent(job.program[0], bench::main_program(), ignored);
  if (trains && std::ranges::any_of(job.placement.places, &launch::Place::here))
    check_train({job.program.begin() + 2, job.program.end()}, job.placement.size, job.servers);
}

nlohmann::ordered_json to_json(const launch::Ending& ending, double seconds_in_all) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array(), failed;
  for (const launch::RankEnding& rank : ending.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"name", rank.name},
                     {"host", rank.host},
                     {"code", rank.code},
                     {"how", rank.how},
                     {"restarts", rank.restarts},
                     {"seconds", seconds(rank.lived)}});
    if (rank.rank == ending.culprit) failed = ranks.back();
  }
  return {
      {"code", ending.code}, {"seconds", seconds_in_all}, {"why", ending.failure.value_or("")}, {"failed_first", failed}, {"ranks", ranks}};
}

int run(const RunFlags& flags, const std::vector<std::string>& words, const CLI::App& app) {
  if (!words.empty() && words.front().starts_with('-')) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    throw ConfigError(unknown_message("flag", words.front(), std::vector<std::string_view>(names.begin(), names.end())));
  }
  const launch::Machine machine = this_machine();
  const launch::Request request = request_of(flags, machine);
  launch::Job job;
  job.placement = launch::place_ranks(request, machine);
  job.servers = request.servers;
  job.program = program_of(words);
  refuse_wrong_recipe(job);
  set_address(flags, request.nodes, job);
  job.exported = exported(flags.exported);
  job.max_restarts = flags.max_restarts;
  job.healthy_after = duration_of("--healthy-after", flags.healthy_s);
  job.grace = duration_of("--grace", flags.grace_s);
  job.ssh.clear();
  std::istringstream ssh(flags.ssh);
  for (std::string word; ssh >> word;) job.ssh.push_back(word);
  if (job.ssh.empty()) throw ConfigError("--ssh needs a program");

  if (flags.only >= job.placement.size)
    throw ConfigError(fmt::format("--only-rank-output {}: the ranks are 0 to {}", flags.only, job.placement.size - 1));
  job.output.prefix = !flags.no_prefix;
  if (flags.only >= 0) job.output.only = flags.only;
  job.output.folder = flags.log_dir;
  if (!flags.log_dir.empty()) ensure_writable_folder(flags.log_dir);
  job.output.all_to_stderr = flags.json;
  job.output.out = launch::Display::of_descriptor(flags.json ? STDERR_FILENO : STDOUT_FILENO);
  job.output.err = launch::Display::of_descriptor(STDERR_FILENO);
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  const launch::Ending ending = launch::launch(job);
  if (flags.json) print_json(to_json(ending, seconds(clock.now() - began)));
  return ending.code;
}

}  // namespace

void spell_out(const CLI::App& app, std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") {
    std::replace(words.begin(), words.end(), std::string("-np"), std::string("-n"));
    return;
  }
  const CLI::App* run = app.get_subcommand("run");
  std::size_t i = 1;
  for (; i < words.size() && words[i].starts_with('-') && words[i] != "--"; ++i) {
    const auto equals = std::min(words[i].find('='), words[i].size());
    if (words[i].starts_with("--")) std::replace(words[i].begin(), words[i].begin() + static_cast<std::ptrdiff_t>(equals), '_', '-');
    else if (words[i] == "-np") words[i] = "-n";
    const CLI::Option* option = run->get_option_no_throw(words[i]);
    if (option != nullptr && option->get_items_expected_min() > 0) ++i;  // its value
  }
  // Without this, CLI11 would take what follows for arguments of the parent command; even so, the first word that is not a flag begins the
  // program.
  if (i < words.size() && words[i] == "--") words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
}

Action add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  app.prefix_command();
  app.add_option("-n,--np", flags->ranks, "ranks of the whole job (default: one per core, or all slots of the hosts)")
      ->check(whole_number(1));
  app.add_option("--servers", flags->servers, "parameter servers, started before the workers, for ps.executor=processes")
      ->check(whole_number(1));
  app.add_option("--workers", flags->workers, "workers besides the servers; without --servers the same as -np")->check(whole_number(1));
  app.add_option("--nproc-per-node", flags->per_node, "ranks per host: a number, cpu (one per core), gpu (one per GPU) or auto (cpu)")
      ->type_name("NUMBER|cpu|gpu|auto")
      ->check(known_values({"cpu", "gpu", "auto"}));
  app.add_option("-H,--host", flags->hosts, "hosts and their slots, for example a:2,b:4; other hosts are reached by ssh")
      ->type_name("HOST,...");
  app.add_option("--hostfile,--machinefile", flags->hostfile, "file of hosts, with lines `host slots=N`")->type_name(kFile);
  app.add_option("--ssh", flags->ssh, "the program that reaches other hosts, with arguments")->type_name("COMMAND")->capture_default_str();
  app.add_option("-x,--env", flags->exported,
                 "NAME or NAME=VALUE: set this variable for all ranks, on other hosts too; may be repeated. PACELINE_… variables are "
                 "always passed on")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--nnodes", flags->nodes, "number of hosts, when `paceline run` is started on each of them")
      ->type_name("NUMBER")
      ->capture_default_str();
  app.add_option("--node-rank", flags->node_rank, "with --nnodes: the number of this host, from 0")->check(whole_number(0));
  app.add_option("--master-addr", flags->address, "address of rank 0's host; found automatically without --nnodes")->type_name("HOST");
  app.add_option("--master-port", flags->port, "port of rank 0; a free one without --nnodes, else 29500")->check(whole_number(1, 65535));
  app.add_option("--rdzv-endpoint", flags->endpoint, "--master-addr and --master-port as host:port")->type_name("ADDRESS");
  app.add_option("--rdzv-id", flags->job, "name of the job, for jobs that share an address")->type_name("NAME");
  app.add_option("--key-file", flags->key_file, "with --nnodes: the key that all launchers share; else $PACELINE_JOB")->type_name(kFile);
  app.add_option("--rdzv-backend", flags->backend, "accepted for compatibility with torchrun")
      ->check(CLI::IsMember({"c10d", "static"}))
      ->group("");
  app.add_flag("--no-python", flags->no_python, "accepted for compatibility with torchrun")->group("");
  app.add_flag("--standalone", flags->standalone, "this host alone (the default)");
  app.add_option("--max-restarts", flags->max_restarts,
                 "how many times all ranks are restarted after one failed, from the newest checkpoint; with --servers, each server and "
                 "worker is restarted alone")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--healthy-after", flags->healthy_s,
                 "seconds after which a start counts as healthy: once a rank or server has lived so long, all its --max-restarts are "
                 "available again")
      ->capture_default_str();
  app.add_option("--grace", flags->grace_s,
                 "seconds that the other ranks have to end after one failed, before SIGTERM and again before SIGKILL")
      ->capture_default_str();
  app.add_option("--log-dir", flags->log_dir, "folder for the output of each rank: rank-N.log (server-N.log, worker-N.log)")
      ->type_name(kFolder);
  app.add_flag("--no-prefix", flags->no_prefix, "print the ranks' lines without a [rank] prefix");
  app.add_option("--only-rank-output", flags->only, "print the standard output of this rank only, byte for byte, for scripts")
      ->check(whole_number(0));
  app.add_flag("--json", flags->json,
               "print one JSON document on standard output at the end: how every rank ended, which failed first and why; the ranks' "
               "own output goes to standard error");
  add_examples(app,
               {"paceline run -np 2 -- train recipes/mnist_lenet5.toml", "paceline run -np 4 --log-dir logs -- build/bin/paceline train",
                "paceline run --servers 1 --workers 3 -- train strategy.name=asgd", "paceline run -H a:2,b:2 -x PATH -- python3 train.py",
                "paceline run --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr a -- train",
                "paceline run -np 2 --only-rank-output 0 -- train my.toml --json | jq .test_accuracy",
                "paceline run -np 2 --json -- train my.toml | jq .failed_first"});
  return [flags, &app] { return run(*flags, app.remaining(), app); };
}

}  // namespace paceline::cli

// store_victim RANK tcp:PORT|unix KEY: one of the ranks 0 and 1 of a job of three; the attacker is the third. Rank 0 serves the store, rank
// 1 sets, gets and adds, and checks every answer. In the end both say what is in the store.
#include <unistd.h>

#include <exception>

#include "paceline/base/error.h"
#include "paceline/comm/tcp_store.h"
#include "paceline/comm/world.h"
#include "tests/hostile/victim.h"

namespace paceline::hostile {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kDeadline = 60s;

std::shared_ptr<comm::Store> open_store(int rank, const std::string& where, const std::string& key) {
  if (where == "unix") {
    comm::World world;
    world.rank = world.local_rank = rank;
    world.size = world.local_size = 3;
    world.job = key;
    return comm::connect_store(world, kDeadline);
  }
  comm::StoreJob job;
  job.hello.rank = rank, job.hello.size = job.hello.local_size = 3, job.hello.pid = ::getpid();
  job.hello.instance = static_cast<std::uint64_t>(rank);
  job.hello.host_id = comm::host_id(), job.hello.host_name = "victim";
  job.key = key;
  job.candidates = {comm::tcp_address("127.0.0.1", std::stoi(where.substr(4)))};
  return rank == 0 ? serve_store(job, kDeadline) : reach_store(job, kDeadline);
}

void check(bool good, std::int64_t round) {
  if (!good) throw Error(fmt::format("the store's answer in round {} is wrong", round));
}

void play(comm::Store& store, std::int64_t round) {
  const std::string value = fmt::format("value {}", round * round);
  store.set("cell", value, kDeadline);
  check(store.get("cell", kDeadline) == value, round);
  check(store.add("count", 1, kDeadline) == round + 1, round);
}

int main(int rank, const std::string& where, const std::string& key) {
  const auto store = open_store(rank, where, key);
  const std::int64_t rounds = go_on([&](std::int64_t round) {
    if (rank == 1) play(*store, round);
  });
  const std::string cell = store->get("cell", kDeadline).value_or(""), count = store->get("count", kDeadline).value_or("");
  say(fmt::format(R"({{"rank": {}, "rounds": {}, "count": "{}", "cell": "{}"}})", rank, rounds, count, cell));
  return 0;
}

}  // namespace
}  // namespace paceline::hostile

int main(int count, char** words) {
  if (count != 4) return fmt::print(stderr, "usage: {} RANK tcp:PORT|unix KEY\n", words[0]), 2;
  try {
    return paceline::hostile::main(std::stoi(words[1]), words[2], words[3]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

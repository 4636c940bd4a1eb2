// server_victim KEY [FOLDER]: a parameter server and its one worker, over gRPC. In the end the parameters must be, bit for bit, those of a
// server that had the same pushes and no visitors. FOLDER holds server.pem, server.key, worker.pem, worker.key and ca.pem: both use TLS.
//
// server_victim KEY FOLDER ADDRESS: one more worker, which joins, pulls and goes.
#include "tests/hostile/victim.h"

#if PACELINE_WITH_GRPC

#include <cstring>
#include <exception>

#include "tests/ps/grpc_fleet.h"

namespace paceline::hostile {
namespace {

std::vector<float> parameters_of(ps::ConcurrentServer& concurrent) {
  return concurrent.with([](ps::Server& server) { return std::vector<float>(server.parameters(), server.parameters() + server.length()); });
}

/// What nobody disturbed.
std::vector<float> reference(std::int64_t rounds) {
  const auto concurrent = ps::make_concurrent({});
  const auto worker = ps::make_in_process_client({concurrent}, {0, ps::kLength}, 0);
  for (std::int64_t round = 0; round < rounds; ++round) {
    ps::pulled(*worker);
    std::vector<float> gradient = ps::gradient_of(0, static_cast<int>(round % 100));
    worker->push(gradient.data(), {.rate = ps::kRate});
  }
  return parameters_of(*concurrent);
}

ps::Security security_of(const std::string& key, const std::string& folder, const std::string& who) {
  if (folder.empty()) return {.secret = key};
  return {.secret = key, .certificate = folder + "/" + who + ".pem", .key = folder + "/" + who + ".key", .authority = folder + "/ca.pem"};
}

int join(const std::string& key, const std::string& folder, const std::string& address) {
  ps::pulled(*ps::connect_grpc({address}, ps::layout(), {.security = security_of(key, folder, "worker")}));
  say(R"({"joined": true})");
  return 0;
}

int main(const std::string& key, const std::string& folder) {
  const auto concurrent = ps::make_concurrent({});
  ps::GrpcServer server(concurrent, ps::layout(), {.security = security_of(key, folder, "server")});
  say(fmt::format(R"({{"address": "{}"}})", server.address()));
  auto worker = ps::connect_grpc({server.address()}, ps::layout(), {.worker = 0, .security = security_of(key, folder, "worker")});
  const std::int64_t rounds = go_on([&](std::int64_t round) {
    ps::pulled(*worker);
    std::vector<float> gradient = ps::gradient_of(0, static_cast<int>(round % 100));
    worker->push(gradient.data(), {.rate = ps::kRate});
  });
  worker.reset();
  const std::int64_t updates = concurrent->with([](ps::Server& state) { return state.version(); });
  const std::vector<float> ours = parameters_of(*concurrent), expected = reference(rounds);
  const bool same = std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)) == 0;
  say(fmt::format(R"({{"rounds": {}, "updates": {}, "same": {}}})", rounds, updates, same));
  return 0;
}

}  // namespace
}  // namespace paceline::hostile

int main(int count, char** words) {
  if (count < 2 || count > 4) return fmt::print(stderr, "usage: {} KEY [FOLDER [ADDRESS]]\n", words[0]), 2;
  try {
    if (count == 4) return paceline::hostile::join(words[1], words[2], words[3]);
    return paceline::hostile::main(words[1], count == 3 ? words[2] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

#else

int main() { return fmt::print(stderr, "this build has no gRPC\n"), 77; }

#endif

// Who may talk to a parameter server over gRPC: TLS, the job's key, and what strangers can take.
#if PACELINE_WITH_GRPC

#include <gmock/gmock.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/impl/rpc_method.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/comm/handshake.h"
#include "paceline/ps/transports/grpc_stream.h"
#include "tests/certificates.h"
#include "tests/message_of.h"
#include "tests/ps/grpc_fleet.h"

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

class GrpcTls : public testing::Test {
 protected:
  void SetUp() override {
    if (!Certificates::possible()) GTEST_SKIP() << "openssl is not installed";
    made_.make_authority("ca"), made_.make_authority("other");
    made_.make("server", "ca"), made_.make("worker", "ca"), made_.make("stranger", "other");
  }

  Security security(const std::string& who) const {
    return {kSecret, made_.file(who + ".pem"), made_.file(who + ".key"), made_.file("ca.pem"), false};
  }

 private:
  Certificates made_;
};

TEST_F(GrpcTls, BothSidesShowCertificates) {
  Fleet fleet({}, 1, {.security = security("server")});
  const auto client = connect(fleet.addresses, layout(), {.security = security("worker")});
  const auto before = pulled(*client);
  auto gradient = gradient_of(0, 0);
  client->push(gradient.data(), {.rate = kRate});
  EXPECT_NE(pulled(*client), before);
}

/// More than buffers hold, in pieces, both ways.
TEST_F(GrpcTls, CarriesALargeModel) {
  const auto concurrent = make_large_host();
  const GrpcServer server(concurrent, large_layout(), keyed({.security = security("server")}));
  const auto client = connect({server.address()}, large_layout(), {.security = security("worker")});
  std::vector<float> parameters(kMany, -1), gradient(kMany);
  for (std::int64_t i = 0; i < kMany; ++i) gradient[static_cast<std::size_t>(i)] = static_cast<float>(i % 1021);
  client->pull(parameters.data(), kRate);
  client->push(gradient.data(), {.rate = kRate});
  client->pull(parameters.data(), kRate);
  const bool same = concurrent->with(
      [&](Server& state) { return std::equal(parameters.begin(), parameters.end(), state.parameters()) && state.version() == 1; });
  EXPECT_TRUE(same);
  EXPECT_NE(parameters[1], 0);
}

/// A worker whose server was killed and came back goes through the same door again.
TEST_F(GrpcTls, ComesBackToAServerThatCameBack) {
  const auto concurrent = make_concurrent({});
  auto server = std::make_unique<GrpcServer>(concurrent, layout(), keyed({.security = security("server")}));
  const std::string address = server->address();
  const auto client = connect({address}, layout(), {.security = security("worker")});
  pulled(*client);
  server.reset();
  ServiceOptions again = keyed({.security = security("server")});
  again.address = address;
  server = std::make_unique<GrpcServer>(concurrent, layout(), again);
  EXPECT_NO_THROW(pulled(*client));
}

TEST_F(GrpcTls, RefusesAKeyThatDoesNotBelongToTheCertificate) {
  Security mixed = security("server");
  mixed.key = security("worker").key;
  const auto names_both = AllOf(HasSubstr(mixed.certificate), HasSubstr(mixed.key));
  EXPECT_THAT(message_of<ConfigError>([&] { GrpcServer(make_concurrent({}), layout(), {.security = mixed}); }), names_both);
  EXPECT_THAT(message_of<ConfigError>([&] { connect_grpc({"127.0.0.1:1"}, layout(), {.security = mixed}); }), names_both);
}

/// With a patience of a minute: what waiting cannot mend is said at once.
TEST_F(GrpcTls, NamesAMismatch) {
  const auto refusal = [&](const Fleet& fleet, JoinOptions options) -> std::string {
    try {
      if (options.security.secret.empty()) options.security.secret = kSecret;
      connect_grpc(fleet.addresses, layout(), options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing";
  };
  const Fleet with({}, 1, {.security = security("server")}), without({}, 1);
  EXPECT_THAT(refusal(with, {}), AllOf(HasSubstr(with.addresses[0]), HasSubstr("TLS"), HasSubstr("ps.certificate")));
  EXPECT_THAT(refusal(without, {.security = security("worker")}), AllOf(HasSubstr(without.addresses[0]), HasSubstr("does not use TLS")));
  EXPECT_THAT(refusal(with, {.security = security("stranger")}), AllOf(HasSubstr("TLS handshake"), HasSubstr("ps.authority")));
  Security wrong_key = security("worker");
  wrong_key.secret = "another job's";
  EXPECT_THAT(refusal(with, {.security = wrong_key}), HasSubstr("key"));
}

// ---- strangers

TEST(GrpcStrangers, AreRefusedWithoutTheKey) {
  const Fleet fleet({}, 1);
  const auto refusal = [&](const std::string& secret) -> std::string {
    try {
      connect_grpc(fleet.addresses, layout(), {.security = {.secret = secret}});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refusal("another job's"), AllOf(HasSubstr(fleet.addresses[0]), HasSubstr("key"), HasSubstr("--key-file")));
  EXPECT_THAT(refusal(""), HasSubstr("PACELINE_JOB"));
  EXPECT_TRUE(fleet.servers[0]->workers().empty());
  EXPECT_THROW(GrpcServer(make_concurrent({}), layout(), {}), ConfigError) << "a server without a key";
  EXPECT_NO_THROW(pulled(*connect(fleet.addresses, layout())));
}

/// Whoever knows the key still gets no more than its part: streams that do not join are few and end soon.
TEST(GrpcStrangers, StreamsThatDoNotJoinAreFew) {
  const Fleet fleet({}, 1);
  const std::string address = fleet.addresses[0];
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>> streams;
  for (int i = 0; i < 40; ++i) {
    comm::Socket socket = comm::dial(socket_address(address), comm::Deadline(20s));
    comm::authenticate(socket, kSecret, comm::kForServers, comm::Deadline(20s));
    channels.push_back(grpc::CreateCustomInsecureChannelFromFd(address, socket.release(), channel_arguments(10s)));
    const grpc::internal::RpcMethod session(kSession, grpc::internal::RpcMethod::BIDI_STREAMING, channels.back());
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.emplace_back(grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
        channels.back().get(), session, contexts.back().get()));
  }
  EXPECT_NO_THROW(pulled(*connect(fleet.addresses, layout()))) << "a worker of ours waits for its turn, and gets it";
  for (const auto& stream : streams) {
    grpc::ByteBuffer nothing;
    EXPECT_FALSE(stream->Read(&nothing));
    EXPECT_FALSE(stream->Finish().ok());
  }
}

}  // namespace
}  // namespace paceline::ps

#endif

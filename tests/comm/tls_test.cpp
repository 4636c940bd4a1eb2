// TLS as bytes, and the relay that carries them.
#include "paceline/comm/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "paceline/base/files.h"
#include "paceline/comm/relay.h"
#include "tests/certificates.h"
#include "tests/message_of.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr Nanoseconds kEnough = 20s;  // no test waits so long unless something is broken

class Tls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!Certificates::possible()) return;
    made_ = new Certificates;
    made_->make_authority("ca"), made_->make_authority("other");
    made_->make("server", "ca"), made_->make("worker", "ca"), made_->make("stranger", "other"), made_->make("named", "ca", "DNS:a.example");
  }
  static void TearDownTestSuite() { delete std::exchange(made_, nullptr); }
  void SetUp() override {
    if (made_ == nullptr) GTEST_SKIP() << "openssl is not installed";
  }

  static TlsFiles files(const std::string& name, const std::string& authority = "ca") {
    return {made_->file(name + ".pem"), made_->file(name + ".key"), made_->file(authority + ".pem")};
  }
  static std::string file(const std::string& name) { return made_->file(name); }

  /// What a client and a server that meet have in the end: plain ends, or why not.
  struct Meeting {
    Socket server, client;
    std::string at_server, at_client;
  };
  Meeting meet(const TlsFiles& server, const TlsFiles& client, const std::string& host = "127.0.0.1") {
    auto [one, other] = socket_pair();
    Meeting meeting;
    std::promise<void> over;
    servers_.receive(
        TlsSession::as_server(TlsContext(server)), std::move(one),
        [&](Socket plain) { meeting.server = std::move(plain), over.set_value(); },
        [&](const std::string& why) { meeting.at_server = why, over.set_value(); });
    try {
      auto session = TlsSession::as_client(TlsContext(client), host);
      connect_tls(session, other, Deadline(kEnough));
      meeting.client = clients_.carry(std::move(session), std::move(other));
    } catch (const TlsError& error) {
      meeting.at_client = error.what();
    }
    over.get_future().wait();
    return meeting;
  }

  Relay servers_, clients_;

 private:
  static Certificates* made_;
};
Certificates* Tls::made_ = nullptr;

TEST_F(Tls, CarriesBothWaysAndEnds) {
  Meeting meeting = meet(files("server"), files("worker"));
  ASSERT_TRUE(meeting.server && meeting.client) << meeting.at_server << meeting.at_client;
  std::string large(20'000'001, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  const Deadline until(kEnough);
  std::thread there([&] { send_all(meeting.client, large, until); }), back([&] { send_all(meeting.server, large, until); });
  std::string heard;
  std::thread reader([&] { heard = receive_exactly(meeting.client, large.size(), until); });
  EXPECT_TRUE(receive_exactly(meeting.server, large.size(), until) == large);
  there.join(), back.join(), reader.join();
  EXPECT_TRUE(heard == large);

  send_all(meeting.client, "last words", until);
  meeting.client.reset();
  EXPECT_EQ(receive_exactly(meeting.server, 10, until), "last words");
  EXPECT_THROW(receive_exactly(meeting.server, 1, until), std::system_error) << "the end arrives";
  while (servers_.size() + clients_.size() > 0 && !until.passed()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(servers_.size() + clients_.size(), 0u) << "both have let go";
}

/// Data that nobody reads stays with its sender, apart from what fits into buffers.
TEST_F(Tls, HoldsBackASenderWhoseReaderSleeps) {
  const Meeting meeting = meet(files("server"), files("worker"));
  ASSERT_TRUE(meeting.server && meeting.client);
  const std::string chunk(64 << 10, 'x');
  std::size_t sent = 0;
  for (int idle = 0; idle < 50;) {
    const ssize_t now = ::send(meeting.client.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) sent += static_cast<std::size_t>(now), idle = 0;
    else ++idle, std::this_thread::sleep_for(10ms);
    ASSERT_LT(sent, 64u << 20) << "somebody keeps it all";
  }
  EXPECT_EQ(receive_exactly(meeting.server, sent, Deadline(kEnough)).size(), sent);
}

TEST_F(Tls, BothSidesSayWhatIsWrongWithACertificate) {
  const Meeting by_server = meet(files("server"), files("stranger"));
  EXPECT_FALSE(by_server.server || by_server.client);
  EXPECT_THAT(by_server.at_server, HasSubstr("certificate"));
  EXPECT_THAT(by_server.at_client, HasSubstr("alert"));
  const Meeting by_client = meet(files("server"), files("worker", "other"));
  EXPECT_FALSE(by_client.server || by_client.client);
  EXPECT_THAT(by_client.at_client, HasSubstr("certificate"));
  EXPECT_THAT(by_client.at_server, HasSubstr("alert"));
}

TEST_F(Tls, TheServersCertificateNamesItsHost) {
  EXPECT_TRUE(meet(files("server"), files("worker")).client);
  EXPECT_TRUE(meet(files("named"), files("worker"), "a.example").client);
  EXPECT_THAT(meet(files("server"), files("worker"), "127.0.0.2").at_client, HasSubstr("mismatch"));
  EXPECT_THAT(meet(files("named"), files("worker"), "b.example").at_client, HasSubstr("mismatch"));
  EXPECT_THAT(meet(files("named"), files("worker"), "127.0.0.1").at_client, HasSubstr("mismatch"));
}

TEST_F(Tls, LetsGoOfPeersThatDoNotSpeakIt) {
  const auto refusal = [&](const std::string& bytes, bool leaves) {
    auto [one, other] = socket_pair();
    std::promise<std::string> why;
    servers_.receive(
        TlsSession::as_server(TlsContext(files("server"))), std::move(one), [](Socket) {},
        [&](const std::string& text) { why.set_value(text); });
    send_all(other, bytes, Deadline(kEnough));
    if (leaves) other.reset();
    return why.get_future().get();
  };
  EXPECT_THAT(refusal("", false), HasSubstr("time"));
  EXPECT_THAT(refusal("", true), HasSubstr("left"));
  EXPECT_FALSE(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false).empty());
  EXPECT_FALSE(refusal(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), false).empty());
}

TEST_F(Tls, RefusesFilesThatAreNoPair) {
  const auto refusal = [](const TlsFiles& files) { return message_of<ConfigError>([&] { TlsContext context(files); }); };
  TlsFiles mixed = files("server");
  mixed.key = file("worker.key");
  EXPECT_THAT(refusal(mixed), AllOf(HasSubstr("server.pem"), HasSubstr("worker.key")));
  mixed.key = file("server.pem");
  EXPECT_THAT(refusal(mixed), AllOf(HasSubstr("server.pem"), HasSubstr("private key")));
  mixed = files("server");
  mixed.certificate = file("nobody.pem");
  EXPECT_THAT(refusal(mixed), HasSubstr("nobody.pem"));
  mixed = files("server");
  mixed.authority = file("server.key");
  EXPECT_THAT(refusal(mixed), HasSubstr("server.key"));
}

}  // namespace
}  // namespace paceline::comm

// Messages in pieces, over a wire that plays a network library within one thread: it matches sends and receives in their order, moves a
// piece when both sides have posted it, and would notice a piece for which there is no room.
#include "paceline/comm/engines/piece_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

/// What two ranks' wires have between them, in one direction.
class Channel {
 public:
  struct Post {
    void* memory;
    std::int64_t bytes;
    bool done = false;
  };

  void add(Tag tag, const std::shared_ptr<Post>& post, bool sends) {
    auto& [sent, awaited] = posts_[tag];
    (sends ? sent : awaited).push_back(post);
    while (!sent.empty() && !awaited.empty()) {
      move(*sent.front(), *awaited.front());
      sent.pop_front(), awaited.pop_front();
    }
  }
  void forget(Tag tag, const std::shared_ptr<Post>& post) {
    auto& [sent, awaited] = posts_[tag];
    std::erase(sent, post), std::erase(awaited, post);
  }
  std::size_t awaited(Tag tag) { return posts_[tag].second.size(); }

 private:
  static void move(Post& from, Post& to) {
    ASSERT_LE(from.bytes, to.bytes) << "a piece is longer than the memory that waits for it";
    std::memcpy(to.memory, from.memory, static_cast<std::size_t>(from.bytes));
    from.done = to.done = true;
  }
  using Queue = std::deque<std::shared_ptr<Post>>;
  std::map<Tag, std::pair<Queue, Queue>> posts_;
};

class PlayedWire final : public Wire {
 public:
  PlayedWire(Channel& out, Channel& in) : out_(out), in_(in) {}
  std::size_t window() const override { return 3; }
  std::unique_ptr<Transport::Request> send(int, Tag tag, const void* data, std::int64_t bytes) override {
    return std::make_unique<Request>(out_, tag, const_cast<void*>(data), bytes, true);
  }
  std::unique_ptr<Transport::Request> receive(int, Tag tag, void* data, std::int64_t room) override {
    return std::make_unique<Request>(in_, tag, data, room, false);
  }

 private:
  class Request final : public Transport::Request {
   public:
    Request(Channel& channel, Tag tag, void* memory, std::int64_t bytes, bool sends)
        : channel_(channel), tag_(tag), post_(std::make_shared<Channel::Post>(Channel::Post{memory, bytes})) {
      channel.add(tag, post_, sends);
    }
    ~Request() override { channel_.forget(tag_, post_); }
    bool test() override { return post_->done; }

   private:
    Channel& channel_;
    Tag tag_;
    std::shared_ptr<Channel::Post> post_;
  };

  Channel &out_, &in_;
};

class Pieces : public testing::Test {
 protected:
  using RequestPtr = std::unique_ptr<Transport::Request>;

  static bool all_done(const std::vector<Transport::Request*>& requests) {
    constexpr int kPatience = 10000;
    for (int turn = 0; turn < kPatience; ++turn) {
      bool all = true;
      for (auto* request : requests) all = request->test() && all;
      if (all) return true;
    }
    return false;
  }
  RequestPtr send(const std::vector<float>& values, Tag tag = 0) { return left_.send(1, tag, values.data(), bytes_of(values)); }
  RequestPtr receive(std::vector<float>& values, Tag tag = 0, bool reduces = false) {
    return right_.receive(0, tag, values.data(), bytes_of(values), {.reduces = reduces, .dtype = DType::f32, .op = ReduceOp::sum});
  }
  static std::int64_t bytes_of(const std::vector<float>& values) { return static_cast<std::int64_t>(values.size() * sizeof(float)); }
  static std::vector<float> numbers(std::size_t count, float first = 0) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  Channel there_, back_;
  PlayedWire left_wire_{there_, back_}, right_wire_{back_, there_};
  PieceTransport left_{left_wire_, 0}, right_{right_wire_, 1};
};

TEST_F(Pieces, CarryMessagesOfAnyLength) {
  for (const std::size_t count : {0, 1, 16383, 16384, 16385, 147455, 147456, 147457, 1000003})
    for (const bool receiver_first : {false, true})
      for (const bool reduces : {false, true}) {
        const std::vector<float> sent = numbers(count, 1);
        std::vector<float> got(count, 2);
        RequestPtr receiving = receiver_first ? receive(got, 0, reduces) : nullptr;
        const RequestPtr sending = send(sent);
        if (!receiving) receiving = receive(got, 0, reduces);
        ASSERT_TRUE(all_done({sending.get(), receiving.get()})) << count;
        const std::vector<float> expected = numbers(count, reduces ? 3 : 1);
        EXPECT_TRUE(got == expected) << count << " elements, reduces " << reduces;
      }
}

TEST_F(Pieces, OfOneTagKeepTheirOrderAndOtherTagsDoNotWait) {
  constexpr std::size_t kLong = 2000000;
  const std::vector<float> first = numbers(kLong, 1), second = numbers(kLong, 2), other = numbers(10, 3);
  const RequestPtr a = send(first, 7), b = send(second, 7), c = send(other, 8);
  std::vector<float> got_other(10), got_first(kLong), got_second(kLong);
  const RequestPtr z = receive(got_other, 8);
  ASSERT_TRUE(all_done({c.get(), z.get()})) << "a message of another tag waits behind long ones";
  EXPECT_EQ(got_other, other);
  const RequestPtr x = receive(got_first, 7), y = receive(got_second, 7);
  ASSERT_TRUE(all_done({y.get(), x.get(), b.get(), a.get()}));
  EXPECT_TRUE(got_first == first);
  EXPECT_TRUE(got_second == second);
}

TEST_F(Pieces, OfAnUnexpectedLengthAreNamedWhetherLongerOrShorter) {
  for (const auto& [sent_count, expected_count] :
       {std::pair{10, 9}, {9, 10}, {200000, 199999}, {199999, 200000}, {1, 300000}, {300000, 1}}) {
    Channel there, back;
    PlayedWire left_wire(there, back), right_wire(back, there);
    PieceTransport left(left_wire, 0), right(right_wire, 1);
    const std::vector<float> sent(static_cast<std::size_t>(sent_count));
    std::vector<float> got(static_cast<std::size_t>(expected_count));
    const RequestPtr receiving = right.receive(0, 0, got.data(), bytes_of(got), {});
    const RequestPtr sending = left.send(1, 0, sent.data(), bytes_of(sent));
    sending->test();
    try {
      receiving->test();
      FAIL() << "nothing is said about " << sent_count << " elements where " << expected_count << " are received";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_EQ(std::string(error.what()), "rank 0 sent " + std::to_string(4 * sent_count) + " bytes where rank 1 receives " +
                                               std::to_string(4 * expected_count) + " bytes");
    }
  }
}

TEST_F(Pieces, UnderWayAreNoMoreThanTheWindow) {
  std::vector<float> got(2000000), more(2000000);
  const RequestPtr a = receive(got), b = receive(more);
  EXPECT_EQ(there_.awaited(0), left_wire_.window());
}

TEST_F(Pieces, OfAMessageThatIsGivenUpAreForgotten) {
  std::vector<float> got(2000000), next(5);
  RequestPtr given_up = receive(got);
  given_up.reset();
  EXPECT_EQ(there_.awaited(0), 0U);
  const std::vector<float> sent = numbers(5);
  const RequestPtr receiving = receive(next), sending = send(sent);
  ASSERT_TRUE(all_done({receiving.get(), sending.get()}));
  EXPECT_EQ(next, sent);
}

}  // namespace
}  // namespace paceline::comm

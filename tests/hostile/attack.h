// What the attacks on a store and on a parameter server share: whom they aim at, and what they found out.
//
// Every attack is bounded in count and time, ends by itself, and reports facts as JSON; hostile_test.py watches the victim meanwhile and
// judges. An attack that has the job's key plays a member of the job that turned against it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "paceline/comm/handshake.h"
#include "paceline/comm/sockets.h"

namespace paceline::hostile {

using Facts = nlohmann::ordered_json;

struct Target {
  comm::SocketAddress address;
  std::string key;                             // the job's; attacks without it do not look
  std::string_view purpose = comm::kForStore;  // of the connection
  int count = 0;                               // 0: as many as the attack likes
  Nanoseconds time = std::chrono::seconds(4);  // that the attack takes at most, where nobody ends it before
};

struct Attack {
  const char* name;
  const char* help;
  Facts (*run)(const Target& target);
};

std::span<const Attack> connection_attacks();  // before or within the handshake, on either victim
std::span<const Attack> store_attacks();       // after it, as a rank
std::span<const Attack> server_attacks();      // after it, as a worker: frames of HTTP/2 by hand, which no client library would send

// ---- parts of them

inline constexpr Nanoseconds kEnough = std::chrono::seconds(20);  // for a step that an honest peer makes in a millisecond

comm::Socket knock(const Target& target);
/// A connection whose handshake was made with the key.
comm::Socket enter(const Target& target);
/// As many as the system and the victim give.
std::vector<comm::Socket> knock_often(const Target& target, int count);
/// Sends what the connection takes at once. False: it is broken.
bool send_some(const comm::Socket& socket, std::string_view bytes);
/// Reads and forgets what comes, until the victim has hung up on all or the time is over; returns on how many it did, which are closed.
int wait_for_hang_up(std::vector<comm::Socket>& sockets, const comm::Deadline& until);
/// Closes with a reset instead of a goodbye.
void reset_hard(comm::Socket& socket);
double seconds_since(Nanoseconds start);
Nanoseconds now();

}  // namespace paceline::hostile

// One client of the store, as its server sees it.
#pragma once

#include <optional>
#include <string>

#include "paceline/comm/tcp_store_server.h"

namespace paceline::comm {

struct StoreServer::Connection {
  enum class State { arrived, idle, waiting, joining, accusing };

  Socket socket;
  State state = State::arrived;
  int rank = -1;
  std::string in, out;
  std::string key;                // waiting: for whom
  std::optional<Deadline> until;  // of a hello, a wait, a join, an accusation
  int culprit = -1;               // accusing: as far as is known
  bool accused_is_gone = false;   // accusing: the one that it accuses
  bool beats = false;
  bool closed = false;

  bool busy() const { return state != State::arrived && state != State::idle; }

  void reply(const wire::Reply& with) {
    out += wire::frame(wire::encode(with));
    state = State::idle;
    until.reset();
  }
};

}  // namespace paceline::comm

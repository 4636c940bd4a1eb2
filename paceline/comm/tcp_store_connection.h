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
  std::string key;                // waiting: for this key
  std::optional<Deadline> until;  // deadline of a hello, a wait, a join or an accusation
  int culprit = -1;               // accusing: as far as is known
  bool accused_is_gone = false;   // accusing: whether the accused is gone
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

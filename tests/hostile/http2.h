// As much of HTTP/2 (RFC 9113) as an attacker needs that has the key: streams of gRPC whose messages need not be whole.
#pragma once

#include <map>
#include <string>

#include "paceline/comm/sockets.h"

namespace paceline::hostile {

class Http2 {
 public:
  explicit Http2(comm::Socket socket);

  /// Begins a call of a method; returns its number.
  int call(const std::string& path);
  /// Bytes of a call, as far as the server's windows let them. False: the call or the connection has ended, or the time is over.
  bool send(int call, std::string_view bytes, const comm::Deadline& until);
  /// Sends them whether the server will take them or not.
  bool send_regardless(int call, std::string_view bytes, const comm::Deadline& until);
  /// Hears what the server says, for so long.
  void listen(const comm::Deadline& until);

  bool is_open() const { return open_; }
  int ended() const { return ended_; }  // calls that the server ended

 private:
  struct Frame {
    int type = 0, flags = 0, stream = 0;
    std::string payload;
  };
  void write(int type, int flags, int stream, std::string_view payload, const comm::Deadline& until);
  bool send_piece(int call, std::string_view piece, const comm::Deadline& until);
  void hear(const Frame& frame);
  void take_settings(const std::string& payload);

  comm::Socket socket_;
  std::string in_;
  bool open_ = true;
  int next_ = 1, ended_ = 0;
  std::int64_t window_ = 65'535, first_window_ = 65'535;
  std::map<int, std::int64_t> windows_;  // by call, while it lasts
};

/// A message as gRPC frames it, which claims `length` bytes, whatever follows.
std::string grpc_message(std::string_view bytes, std::uint32_t length);
inline std::string grpc_message(std::string_view bytes) { return grpc_message(bytes, static_cast<std::uint32_t>(bytes.size())); }

}  // namespace paceline::hostile

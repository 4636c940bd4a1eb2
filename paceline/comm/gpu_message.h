// A message between ranks that are threads and share a GPU. The sender publishes the address of its memory once that is filled; the
// receiver copies it on its own stream and answers when the copy is done. Whoever drives the message blocks while it waits for the GPU: no
// bell rings for that, but nothing queued on a stream waits for a rank.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/activity.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {

class GpuMessage final : public Activity {
 public:
  /// For a send: the work that is on its stream by now fills the buffer.
  GpuMessage(Transport& transport, const Operation& operation);
  bool advance() override;
  int waits_for() const override { return op_.peer; }

 private:
  struct Place {
    const void* data;
    std::int64_t bytes;
  };
  bool advance_send();
  bool advance_receive();
  void copy();

  Transport& transport_;
  Operation op_;
  gpu::Mark mark_;
  Place place_{};
  char answer_ = 0;
  bool told_ = false;
  std::unique_ptr<Transport::Request> tells_, answers_;
};

/// A message between processes, sent by way of host memory like any other.
class StagedMessage final : public Activity {
 public:
  StagedMessage(Transport& transport, const Operation& operation);
  bool advance() override;
  int waits_for() const override { return op_.peer; }

 private:
  void copy(void* to, const void* from);

  Transport& transport_;
  Operation op_;
  gpu::Mark mark_;
  std::vector<std::byte> host_;
  std::unique_ptr<Transport::Request> request_;  // after host_, which it uses
};

}  // namespace paceline::comm

// The endpoint of ranks that share memory, threads or processes.
#pragma once

#include "paceline/comm/endpoint.h"
#include "paceline/comm/shared/mailbox.h"

namespace paceline::comm::shared {

class SharedEndpoint final : public Endpoint {
 public:
  /// What all ranks of a group agree on. `hosts[i]` is the host of rank i: if there are several, a cluster is being emulated on one
  /// machine, and memory counts as shared only within a host.
  struct Agreement {
    std::string engine;
    std::vector<int> host_ranks;  // the number of rank i in the memory
    std::vector<int> hosts;
    int cores = 0;   // of all ranks together
    Location block;  // of block_bytes(hosts)
  };
  static std::int64_t block_bytes(const std::vector<int>& hosts);

  SharedEndpoint(Agreement agreement, int rank, std::shared_ptr<HostMemory> memory);

  std::string engine() const override { return agreement_.engine; }
  int rank() const override { return everyone_->rank(); }
  int size() const override { return everyone_->size(); }
  const std::vector<int>& hosts() const override { return agreement_.hosts; }
  Transport& transport() override { return mailbox_; }
  Waiter& waiter() override { return *everyone_; }
  Group* host_group() override { return host_ ? host_.get() : everyone_.get(); }
  std::unique_ptr<Endpoint> split(const std::vector<int>& members, Communicator& via) override;
  Memory allocate(std::int64_t bytes) override { return memory_->allocate(bytes); }

 private:
  Agreement agreement_;
  std::shared_ptr<HostMemory> memory_;
  std::unique_ptr<Group> everyone_, host_;  // host_: only if there are several hosts
  Mailbox mailbox_;
};

/// The entries of a list by rank for these ranks.
std::vector<int> picked(const std::vector<int>& by_rank, const std::vector<int>& ranks);

/// The hosts of `size` ranks, with `per_host` neighbours on each; 0: all on one.
std::vector<int> emulated_hosts(int size, std::int64_t per_host);

}  // namespace paceline::comm::shared

// Workers in the servers' own process: a pull is one copy from memory to memory, a push is applied from where it lies.
#include "paceline/ps/client.h"

namespace paceline::ps {
namespace {

class InProcess final : public Client {
 public:
  InProcess(std::vector<std::shared_ptr<ConcurrentServer>> servers, std::vector<std::int64_t> cuts, int worker)
      : servers_(std::move(servers)), cuts_(std::move(cuts)), worker_(worker) {
    for (const auto& concurrent : servers_) concurrent->join(worker_);
  }
  ~InProcess() override {
    for (const auto& concurrent : servers_) concurrent->leave(worker_);
  }

  void pull(float* into, float rate) override {
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_[i]->pull(worker_, into ? into + cuts_[i] : nullptr, rate);
  }
  Advice report(const Report& report, const float* statistics) override { return servers_[0]->report(worker_, report, statistics); }
  Admission push(float* gradient, const Push& push) override {
    if (servers_.size() > 1 && !is_usable({gradient, static_cast<std::size_t>(cuts_.back())}, push,
                                          servers_[0]->place())) {  // either all servers use a gradient, or none does
      for (const auto& concurrent : servers_) concurrent->refuse(worker_);
      return {.fate = Admission::Fate::dropped, .gathered = 0};
    }
    const Admission first = servers_[0]->push(worker_, gradient, push);
    for (std::size_t i = 1; i < servers_.size(); ++i) servers_[i]->push(worker_, gradient + cuts_[i], push);
    return first;
  }
  bool cancelled() override { return servers_[0]->cancelled(worker_); }

 private:
  std::vector<std::shared_ptr<ConcurrentServer>> servers_;
  std::vector<std::int64_t> cuts_;
  int worker_;
};

}  // namespace

std::unique_ptr<Client> make_in_process_client(std::vector<std::shared_ptr<ConcurrentServer>> servers, std::vector<std::int64_t> cuts,
                                               int worker) {
  return std::make_unique<InProcess>(std::move(servers), std::move(cuts), worker);
}

}  // namespace paceline::ps

// Workers in the servers' own process: a pull is one copy from memory to memory, a push is applied from where it lies.
#include "paceline/ps/client.h"

namespace paceline::ps {
namespace {

class InProcess final : public Client {
 public:
  InProcess(std::vector<std::shared_ptr<Host>> hosts, std::vector<std::int64_t> cuts, int worker)
      : hosts_(std::move(hosts)), cuts_(std::move(cuts)), worker_(worker) {
    for (const auto& host : hosts_) host->join(worker_);
  }
  ~InProcess() override {
    for (const auto& host : hosts_) host->leave(worker_);
  }

  void pull(float* into, float rate) override {
    for (std::size_t i = 0; i < hosts_.size(); ++i) hosts_[i]->pull(worker_, into ? into + cuts_[i] : nullptr, rate);
  }
  Advice report(const Report& report, const float* statistics) override { return hosts_[0]->report(worker_, report, statistics); }
  Verdict push(float* gradient, const Push& push) override {
    if (hosts_.size() > 1 &&
        !is_usable({gradient, static_cast<std::size_t>(cuts_.back())}, push, hosts_[0]->place())) {  // all servers use a gradient, or none
      for (const auto& host : hosts_) host->refuse(worker_);
      return {.fate = Verdict::Fate::dropped, .gathered = 0};
    }
    const Verdict first = hosts_[0]->push(worker_, gradient, push);
    for (std::size_t i = 1; i < hosts_.size(); ++i) hosts_[i]->push(worker_, gradient + cuts_[i], push);
    return first;
  }
  bool in_vain() override { return hosts_[0]->in_vain(worker_); }

 private:
  std::vector<std::shared_ptr<Host>> hosts_;
  std::vector<std::int64_t> cuts_;
  int worker_;
};

}  // namespace

std::unique_ptr<Client> make_in_process_client(std::vector<std::shared_ptr<Host>> hosts, std::vector<std::int64_t> cuts, int worker) {
  return std::make_unique<InProcess>(std::move(hosts), std::move(cuts), worker);
}

}  // namespace paceline::ps

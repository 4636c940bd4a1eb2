#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>

#include "paceline/comm/store.h"

namespace paceline::comm {
namespace {

std::int64_t counter_value(const std::string& key, const std::string& value) {
  if (value.empty()) return 0;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) throw ConfigError("the store's '" + key + "' is text, not a counter");
  return number;
}

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value, Nanoseconds) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }

  std::optional<std::string> get(const std::string& key, Nanoseconds) override {
    const std::lock_guard lock(mutex_);
    return find(key);
  }

  std::optional<std::string> wait(const std::string& key, Nanoseconds deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, deadline, [&] { return values_.contains(key); });
    return find(key);
  }

  std::int64_t add(const std::string& key, std::int64_t amount, Nanoseconds) override {
    std::int64_t sum = 0;
    {
      const std::lock_guard lock(mutex_);
      std::string& value = values_[key];
      if (__builtin_add_overflow(counter_value(key, value), amount, &sum))
        throw ConfigError("the store's counter '" + key + "' would exceed 64 bits");
      value = std::to_string(sum);
    }
    changed_.notify_all();
    return sum;
  }

  int culprit(int accuser, int accused, bool is_gone) override {
    std::unique_lock lock(mutex_);
    accusations_.accuse(accuser, accused);
    changed_.notify_all();
    for (;;) {
      const Accusations::Result found = accusations_.follow(accuser);
      if (found.circle || (is_gone && found.culprit == accused)) return found.culprit;
      const auto grows = [&] { return accusations_.follow(accuser).culprit != found.culprit || accusations_.follow(accuser).circle; };
      if (!changed_.wait_for(lock, kAccusationTime, grows)) return found.culprit;
    }
  }

 private:
  std::optional<std::string> find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  Accusations accusations_;
};

}  // namespace

std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace paceline::comm

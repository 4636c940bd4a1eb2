#include "paceline/observe/event.h"

#include "paceline/base/log.h"

namespace paceline::observe {

void Bus::add(std::unique_ptr<Listener> listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

void Bus::emit(const Event& event) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const std::unique_ptr<Listener>& listener) {
    try {
      listener->on(event);
      return false;
    } catch (const std::exception& problem) {
      log::warning("{}; the run continues without this record", problem.what());
      return true;
    }
  });
}

}  // namespace paceline::observe

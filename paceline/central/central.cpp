#include "paceline/central/central.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/norm_reports.h"

namespace paceline::central {

std::vector<std::string> Central::views() const {
  std::vector<std::string> views = {ps().statistics};
  if (module().statistics().length() == 0) return views;
  for (const char* view : {kAsyncView, kWorkerView, kRecomputedView})
    if (view != ps().statistics && (knows_workers() || view != std::string_view(kWorkerView))) views.emplace_back(view);
  return views;
}

std::unique_ptr<step::Strategy> make_central(const step::Context& context, const Settings& settings, const step::Resumed* resumed) {
  const ps::PsConfig& ps = settings.ps;
  if (context.compression != "none" && !ps.by_processes())
    throw ConfigError(fmt::format("comm.compression={} has no effect, because ps.executor={} sends nothing; use comm.compression=none",
                                  context.compression, ps.executor));
  if (context.comm().size() > 1 && ps.by_processes())
    throw ConfigError(fmt::format(
        "strategy '{}' needs servers in addition to its {} workers; start them with: paceline run --servers 1 --workers {} -- …",
        settings.strategy, context.comm().size(), context.comm().size()));
  if (context.comm().size() > 1)
    throw ConfigError(
        fmt::format("strategy '{}' runs all its workers in one process with ps.executor={}; start it without a launcher, with --workers {}",
                    settings.strategy, ps.executor, context.comm().size()));
  const ps::ExecutorKind& kind = settings.executor_on(context.model.device().is_cuda()).make;
  if (kind.processes) return make_processes_executor(context, settings, resumed);
  auto made = kind.threads()                            ? make_threads_executor(context, settings)
              : settings.timing.distribution == "trace" ? make_replay_executor(context, settings)
                                                        : make_virtual_executor(context, settings);
  if (resumed) resumed->give_to([&](auto state) { made->load(state); });
  return made;
}

}  // namespace paceline::central

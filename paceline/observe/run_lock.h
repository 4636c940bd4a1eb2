// A run's folder has one writer at a time: two would mix their records and prune each other's checkpoints.
#pragma once

#include "paceline/base/descriptor.h"
#include "paceline/observe/run_folder.h"

namespace paceline::observe {

/// Held by the process that writes to the folder for as long as this lives. It is released with the process, however that ends, so that a
/// killed run can be resumed at once; child processes do not inherit it. If the file system has no locks, nothing is held.
class RunLock {
 public:
  /// Throws ConfigError, with the process, if another one, or another lock of this one, holds it.
  explicit RunLock(const RunFolder& folder);

 private:
  Descriptor file_;
};

}  // namespace paceline::observe

#include "paceline/base/program.h"

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline {

int run_program(const std::function<int()>& body) {
  constexpr int kFailed = 1, kWrongInput = 2;
  try {
    return body();
  } catch (const ConfigError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const DataError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return kFailed;
  }
}

}  // namespace paceline

// All consistencies, for the table in registry.cpp. Each comes from the file of its name.
#pragma once

#include "paceline/ps/consistency.h"

namespace paceline::ps {

std::unique_ptr<Consistency> bsp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> ssp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> asp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_sync(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_batch_sync(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_async(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_batch_async(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> adasync(const ConsistencyConfig& config, int workers);

/// For `load`: throws ConfigError unless the numbers of a checkpoint are `sound`.
void check_state(bool sound);

}  // namespace paceline::ps

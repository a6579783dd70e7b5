// The configuration of a Context. The struct gives type and default; the table in knobs.cc gives the
// rest of each row (environment variable, flag, YAML key, range, scope, help), from which come the
// reader of the environment, the launcher's flags, docs/knobs.md and `_core.knobs()`.
// The environment is read once, at init; nothing below capi/ reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/log.h"

namespace hvd {

enum class TransportChoice : uint8_t { automatic, shm, tcp };
enum class AlgorithmChoice : uint8_t { automatic, direct, ring, recursive_doubling };

struct Knobs {
  // Batching and agreement.
  int64_t fusion_bytes = int64_t{128} << 20;
  std::chrono::microseconds cycle{1000};
  int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;
  // Moving bytes.
  TransportChoice transport = TransportChoice::automatic;
  AlgorithmChoice allreduce_algorithm = AlgorithmChoice::automatic;
  int64_t staging_bytes = int64_t{16} << 20;  ///< shared memory a rank
  std::string interface_name;                 ///< empty: by host name
  // Waiting.
  std::chrono::seconds start_timeout{30};
  std::chrono::seconds peer_timeout{30};
  std::string thread_affinity;  ///< comma list of cores, one for each local rank
  // Stalls.
  bool stall_check_disable = false;
  std::chrono::seconds stall_check{60};
  std::chrono::seconds stall_shutdown{0};  ///< 0: never
  // Log.
  LogLevel log_level = LogLevel::warning;
  bool log_hide_time = false;
};

}  // namespace hvd

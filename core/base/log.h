// The log: one line per message on standard error, `[<time>: <L> <file>:<line>] [<rank>]:
// <message>`, written with one call. No messages per tensor above level debug. Thread-safe.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace hvd {

enum class LogLevel : uint8_t { trace, debug, info, warning, error, fatal };

struct LogOptions {
  LogLevel level = LogLevel::warning;
  bool hide_time = false;
  int rank = -1;  ///< -1: not known yet, omitted
};
void configure_log(const LogOptions& options);

/// Writes a message of the form `event key=value ...`. LogLevel::fatal does not end the process.
void log(LogLevel level, const std::string& message,
         const std::source_location& where = std::source_location::current());

/// A log for events that unauthenticated peers can trigger at any rate: writes the first lines
/// only. The last of them says that further lines are suppressed. Owned and used by one thread.
class LimitedLog {
 public:
  explicit LimitedLog(int most) : left_(most) {}
  void log(LogLevel level, const std::string& message,
           const std::source_location& where = std::source_location::current());

 private:
  int left_;
};

/// Called before and after fork(), so that the child does not inherit a log mutex locked by another
/// thread.
void lock_log();
void unlock_log();

}  // namespace hvd

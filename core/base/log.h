// The log: one line on standard error, `[<time>: <L> <file>:<line>] [<rank>]: <message>`, written
// whole. Used rarely; nothing is logged for a single tensor above debug. Safe from any thread.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace hvd {

enum class LogLevel : uint8_t { trace, debug, info, warning, error, fatal };

struct LogOptions {
  LogLevel level = LogLevel::warning;
  bool hide_time = false;
  int rank = -1;  ///< -1: not known yet, left out
};
void configure_log(const LogOptions& options);

/// Messages are `event key=value ...` in plain words. Fatal does not end the process.
void log(LogLevel level, const std::string& message,
         const std::source_location& where = std::source_location::current());

/// For what strangers can cause as often as they like: only the first lines are written, the last
/// of them with a note that further ones are not. Owned and used by one thread.
class LimitedLog {
 public:
  explicit LimitedLog(int most) : left_(most) {}
  void log(LogLevel level, const std::string& message,
           const std::source_location& where = std::source_location::current());

 private:
  int left_;
};

/// Around a fork, so that the child of a process whose other threads log finds the log free.
void lock_log();
void unlock_log();

}  // namespace hvd

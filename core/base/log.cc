#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace hvd {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  // trace, debug, info, warning, error, fatal have the same order in both.
  return static_cast<spdlog::level::level_enum>(level);
}

// Never destroyed: threads may log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger& instance = [&]() -> spdlog::logger& {
    auto* made = new spdlog::logger("horovod", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%Y-%m-%d %H:%M:%S.%f: %L %s:%#] %v");
    made->set_level(spdlog::level::warn);
    return *made;
  }();
  return instance;
}

}  // namespace

void configure_log(const LogOptions& options) {
  std::string pattern = options.hide_time ? "[%L %s:%#]" : "[%Y-%m-%d %H:%M:%S.%f: %L %s:%#]";
  if (options.rank >= 0) pattern += " [" + std::to_string(options.rank) + "]:";
  logger().set_pattern(pattern + " %v");
  logger().set_level(to_spdlog(options.level));
}

void log(LogLevel level, const std::string& message, const std::source_location& where) {
  logger().log(
      spdlog::source_loc{where.file_name(), static_cast<int>(where.line()), where.function_name()},
      to_spdlog(level), spdlog::string_view_t(message));
}

void LimitedLog::log(LogLevel level, const std::string& message,
                     const std::source_location& where) {
  if (left_ == 0) return;
  --left_;
  hvd::log(level, left_ > 0 ? message : message + " (further messages are suppressed)", where);
}

void lock_log() {
  logger();  // ensures that no other thread constructs it during fork()
  spdlog::details::console_mutex::mutex().lock();
}

void unlock_log() { spdlog::details::console_mutex::mutex().unlock(); }

}  // namespace hvd

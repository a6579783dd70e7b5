#include "core/device/driver.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/driver_symbols.h"
#include "core/device/messages.h"

namespace hvd::device {
namespace {

constexpr int kAnyVersion = INT_MAX;

std::string driver_name(DeviceKind kind) {
  return kind == DeviceKind::rocm ? "libamdhip64.so" : "libcuda.so.1";
}

SharedLibrary open_driver(DeviceKind kind) {
  const std::string name = driver_name(kind);
  // A driver that is loaded already has this name, so it is found before the files.
  const auto search = LibrarySearch::first_of({{Origin::system, name}});
  if (!search.library) fail(Code::invalid_argument, no_driver_text(kind, search.reasons));
  return *search.library;
}

}  // namespace

std::unique_ptr<Driver> Driver::load(DeviceKind kind) {
  std::unique_ptr<Driver> driver(new Driver(kind, open_driver(kind)));
  driver->fill();
  driver->initialize();
  log(LogLevel::info, fmt::format("driver path={} version={} gpus={}", driver->path(),
                                  driver->version(), driver->gpu_count()));
  return driver;
}

Driver::Driver(DeviceKind kind, SharedLibrary library)
    : kind_(kind), library_(std::move(library)), process_(::getpid()) {}

void Driver::fill() {
  const auto missing = fill_table(table_, kDriverSymbols, library_, kind_, kAnyVersion);
  if (missing.empty()) return;
  if (table_.driver_get_version != nullptr) table_.driver_get_version(&version_);
  fail(Code::invalid_argument, old_driver_text(path(), version_, missing));
}

void Driver::initialize() {
  const auto require = [&](Result result) {
    if (result == kSuccess) return;
    fail(Code::invalid_argument, failed_init_text({result, text_of(result), version_, path()}));
  };
  const Result started = table_.init(0);
  table_.driver_get_version(&version_);
  require(started);
  require(table_.device_get_count(&gpu_count_));
  if (gpu_count_ == 0) require(kNoDevice);
}

std::string Driver::text_of(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table_.get_error_name(result, &name) != kSuccess || name == nullptr) name = "unknown error";
  if (table_.get_error_string(result, &text) != kSuccess || text == nullptr) text = "no text";
  return fmt::format("{} ({}): {}", name, result, text);
}

void Driver::fail_call(Result result, const char* doing) const {
  fail(Code::internal, fmt::format("{}: {}", doing, text_of(result)));
}

void Driver::require_same_process() const {
  if (::getpid() != process_) fail(Code::invalid_argument, forked_text(process_));
}

}  // namespace hvd::device

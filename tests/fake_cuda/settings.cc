#include "tests/fake_cuda/settings.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

namespace fake {
namespace {

thread_local const char* current_function = "work";

struct Calls {
  std::mutex mutex;
  std::map<std::string, int64_t> counts;
};
Calls& calls() {
  static auto* const all = new Calls;  // used until the process ends
  return *all;
}

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// `entry`: function=code[@n]
std::optional<int> failure_of(const std::string& entry, const std::string& function) {
  const size_t equals = entry.find('=');
  if (equals == std::string::npos || entry.substr(0, equals) != function) return std::nullopt;
  const size_t at = entry.find('@', equals);
  const std::string code = entry.substr(equals + 1, at == std::string::npos ? at : at - equals - 1);
  int64_t count = 0;
  {
    const std::lock_guard lock(calls().mutex);
    count = ++calls().counts[entry];
  }
  if (at != std::string::npos && count < std::stoll(entry.substr(at + 1))) return std::nullopt;
  if (code == "hang") hang();
  return std::stoi(code);
}

std::atomic<const std::string*> planned{nullptr};  ///< by plan_failures(); readers take no lock

}  // namespace

int64_t number(const char* variable, int64_t otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? otherwise : std::strtoll(value, nullptr, 10);
}

std::string text(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

void plan_failures(const char* list) {
  static std::mutex mutex;
  static std::deque<std::string> all;  // readers may have the former ones
  const std::lock_guard lock(mutex);
  planned.store(list == nullptr ? nullptr : &all.emplace_back(list));
}

std::optional<int> planned_failure(const char* prefix, const char* function) {
  const std::string* const given = planned.load();
  std::istringstream entries(given ? *given : text((std::string(prefix) + "_FAIL").c_str()));
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    if (const auto code = failure_of(entry, function)) return code;
  }
  return std::nullopt;
}

Call::Call(const char* function) : former_(current_function) { current_function = function; }
Call::~Call() { current_function = former_; }

void misuse(const std::string& sentence) {
  std::fprintf(stderr, "fake_cuda: %s: %s\n", current_function, sentence.c_str());
  std::abort();
}

}  // namespace fake

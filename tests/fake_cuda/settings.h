// The variables that control the stand-ins, and how they end a process that misuses them. Compiled
// into both libraries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fake {

/// Reads a variable now, on a thread of the program: tests change them between calls.
int64_t number(const char* variable, int64_t otherwise);
std::string text(const char* variable);

/// What the variable `<prefix>_FAIL` says about a call of `function`: a list of
/// `function=code[@n]`, which makes the n-th call and all later ones return `code`. The code `hang`
/// makes the call never return.
std::optional<int> planned_failure(const char* prefix, const char* function);
/// Replaces the value of the variable `<prefix>_FAIL` of this library, while any threads call it;
/// nullptr: no longer.
void plan_failures(const char* list);

/// Names the function for misuse() until its end. One per exported function.
class Call {
 public:
  explicit Call(const char* function);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  const char* former_;
};

/// Prints `fake_cuda: <function>: <sentence>` and aborts.
[[noreturn]] void misuse(const std::string& sentence);

}  // namespace fake

// What is fuzzed: functions that take any bytes and must neither crash nor hang nor take memory
// without bound. libFuzzer calls them with what it invents (fuzz.cc), and a test of every build
// with what is kept in corpus/ (replay_test.cc).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace hvd::fuzz {

struct Target {
  std::string_view name;
  /// What the code under test may refuse, it refuses by Error; any other end is a finding.
  void (*take)(ConstBytes input);
  /// Inputs made of real messages, to begin from; none of them is refused.
  std::vector<ByteVector> (*samples)();
};
extern const Target agent;
extern const Target agreement;
extern const Target frames;
extern const Target handshake;
extern const Target launcher_values;
extern const Target records;
extern const Target rendezvous;
extern const Target store;
std::span<const Target> targets();
/// nullptr when there is none of that name.
const Target* find_target(std::string_view name);

/// The input, taken from its front. Gives zeros and nothing when it is used up.
class Input {
 public:
  explicit Input(ConstBytes bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte();
  ConstBytes piece(size_t most);
  ConstBytes rest() { return piece(rest_.size()); }

 private:
  ConstBytes rest_;
};

/// False when `work` refuses its input.
template <class Work>
bool accepted(Work work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A finding when it does not hold: aborts.
void must(bool holds, std::string_view what);

}  // namespace hvd::fuzz

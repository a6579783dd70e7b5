// What a launcher asks the hosts of a job.
#pragma once

#include <cstdint>

namespace hvd::launcher {

/// Ordered by how much the answer contains.
enum class Question : uint8_t {
  process_states,  ///< from /proc: no rank gets a signal, no stack is read
  everything,      ///< also what ranks tell themselves
};
inline constexpr Question kLastQuestion = Question::everything;

}  // namespace hvd::launcher

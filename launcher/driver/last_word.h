// A rank's last message to the launcher, through the Store before it raises its error: the rank
// ends because of another rank. Key `ended/<number>/<rank>`, value `<cause> <reason>`, or
// `<cause>! <reason>` if this rank has given up the other one, which is silent. job_number.h
// describes the number.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/driver/driver.h"
#include "launcher/worker/assignment.h"

namespace hvd::launcher {

inline constexpr std::string_view kLastWords = "ended/";

struct LastWord {
  uint32_t number = 0;  ///< of the job that has ended
  int rank = 0;
  int cause = 0;
  std::string reason;
  bool is_silent = false;  ///< the cause
};

/// Returns none if key or value do not have that form.
std::optional<LastWord> parse_last_word(std::string_view key, std::string_view value);

/// Converts the ranks into workers. Returns none for ranks that the assignment does not have, and
/// for messages of another generation.
std::optional<WorkerEnds> worker_ends(const LastWord& word, const Assignment& assignment);

}  // namespace hvd::launcher

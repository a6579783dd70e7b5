// The one exception of the runtime, and the only function that throws it. Values travel for what
// the user did wrong; Error is for what was lost (a peer, a deadline, a device); HVD_ASSERT is for
// our bugs.
#pragma once

#include <stdexcept>
#include <string>

namespace hvd {

/// What went wrong, as every binding sees it. The numbers are part of the C interface.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  ///< misuse on this rank alone; nothing was sent
  not_initialized = 2,   ///< no Context is running
  mismatch = 3,          ///< ranks disagree about one operation; the job goes on
  shut_down = 4,         ///< a rank asked for the end of the job
  peer_lost = 5,         ///< a rank went away without a goodbye
  timed_out = 6,         ///< a deadline passed
  unauthorized = 7,      ///< the other side does not know the job's key
  internal = 8,          ///< anything else, with its text
};

inline constexpr int kNoRank = -1;

/// Ends a Context. `rank` is the global rank that caused it, or kNoRank.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text, int rank = kNoRank)
      : std::runtime_error(text), code_(code), rank_(rank) {}
  Code code() const { return code_; }
  int rank() const { return rank_; }

 private:
  Code code_;
  int rank_;
};

/// Throws Error: the only `throw` of the runtime.
[[noreturn]] void fail(Code code, const std::string& text, int rank = kNoRank);

/// Throws Error{internal} with `doing` and the text of errno.
[[noreturn]] void fail_errno(const std::string& doing);

}  // namespace hvd

// The runtime's only exception type and the only function that throws it. User mistakes are
// reported by return values; Error reports losses (a peer, a deadline, a device); HVD_ASSERT checks
// for bugs of the runtime.
#pragma once

#include <stdexcept>
#include <string>

namespace hvd {

/// The error kind, as every binding reports it. The numbers are part of the C interface.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  ///< misuse on this rank alone; nothing was sent
  not_initialized = 2,   ///< no Context is running
  mismatch = 3,          ///< ranks disagree about one operation; the job continues
  shut_down = 4,         ///< a rank has shut the job down
  peer_lost = 5,         ///< a rank was lost (it sent no goodbye)
  timed_out = 6,         ///< a deadline passed
  unauthorized = 7,      ///< the peer has not proved that it knows the job's key
  internal = 8,          ///< any other error, described by the text
};

inline constexpr int kNoRank = -1;

/// An error that ends a Context. `rank` is the global rank that caused it, or kNoRank.
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

/// Throws Error. The only `throw` in the runtime.
[[noreturn]] void fail(Code code, const std::string& text, int rank = kNoRank);

/// Throws Error{internal} with the text `doing` and the description of errno.
[[noreturn]] void fail_errno(const std::string& doing);

}  // namespace hvd

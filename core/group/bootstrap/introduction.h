// How what rank 0 says reaches the other ranks of a job before they know each other: by way of
// whoever started them. Used once, for a text that says where rank 0 serves the Store and what the
// job's key is; everything else goes through the Store. One file a way.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"
#include "core/group/bootstrap/meeting.h"

namespace hvd {

inline constexpr size_t kMaxIntroductionBytes = 1000;  // PMI-1 has room for 1024

class Introduction {
 public:
  virtual ~Introduction() = default;
  /// Called on every rank of the job, and returns on each what rank 0 gives as `mine`. `name` is
  /// the same on all ranks, and new each time. Throws Error{timed_out}, Error{internal} with what
  /// the launcher says.
  virtual std::string spread(const std::string& name, const std::string& mine,
                             const StartDeadline& deadline) = 0;
};

/// Introduction::spread() of whoever calls init; throws what it likes.
using Spread = std::function<std::string(const std::string& name, const std::string& mine)>;

/// PMI-1's text protocol over the connection that the launcher left open.
std::unique_ptr<Introduction> introduce_by_pmi(const Identity& identity);
/// PMIx: by the library of the launcher, which is looked for while the program runs.
std::unique_ptr<Introduction> introduce_by_pmix(const Identity& identity,
                                                const Environment& environment);

}  // namespace hvd

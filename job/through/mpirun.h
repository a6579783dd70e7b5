// The command line of a job that mpirun starts: which MPI it is of, and what that one is told.
// Pure; through.h runs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/knobs.h"
#include "job/options/hosts.h"
#include "job/options/options.h"

namespace hvd::job {

struct MpiFlavour {
  enum class Kind : uint8_t { open_mpi, spectrum, mpich, intel };
  Kind kind = Kind::open_mpi;
  int major = 0;  ///< of Open MPI's version, whose flags have changed; 0: unknown
  bool operator==(const MpiFlavour&) const = default;
};

/// From what `mpirun --version` prints; nothing when it is none of those.
std::optional<MpiFlavour> flavour_of(std::string_view version_text);

/// Another launcher, as it is started.
struct ForeignLauncher {
  std::vector<std::string> arguments;  ///< its name first
  Environment environment;             ///< its own, and of the ranks
  std::vector<std::string> folders;    ///< it writes into these, but does not make them
  std::vector<std::string> warnings;
};

/// `job`: the environment that ranks shall have. Throws Error{invalid_argument} for what this MPI
/// cannot do.
ForeignLauncher through_mpirun(const MpiFlavour& flavour, const Options& options,
                               const std::vector<Host>& hosts, const Environment& job);

}  // namespace hvd::job

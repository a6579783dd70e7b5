// The command line of a job that mpirun starts, depending on the MPI. Pure; through.h runs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/knobs.h"
#include "launcher/options/hosts.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

struct MpiFlavour {
  enum class Kind : uint8_t { open_mpi, spectrum, mpich, intel };
  Kind kind = Kind::open_mpi;
  int major = 0;  ///< of Open MPI: versions have different flags; 0: unknown
  bool operator==(const MpiFlavour&) const = default;
};

/// Parses the output of `mpirun --version`; none if it is none of those.
std::optional<MpiFlavour> flavour_of(std::string_view version_text);

/// The command and environment of another launcher.
struct ForeignLauncher {
  std::vector<std::string> arguments;  ///< its name first
  Environment environment;             ///< of the launcher and the ranks
  std::vector<std::string> folders;    ///< created by horovodrun, since the launcher does not
  std::vector<std::string> warnings;
};

/// `job`: the environment that ranks get. Throws Error{invalid_argument} for options that this MPI
/// does not support.
ForeignLauncher through_mpirun(const MpiFlavour& flavour, const Options& options,
                               const std::vector<Host>& hosts, const Environment& job);

}  // namespace hvd::launcher

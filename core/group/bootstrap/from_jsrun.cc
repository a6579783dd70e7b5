// jsrun, the launcher of LSF: it sets what Spectrum MPI needs, which is Open MPI's, and names of
// its own where that is not loaded.
#include <fmt/core.h>

#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {

std::optional<Identity> from_jsrun(const Environment& environment) {
  const auto world = place_variables(environment, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE");
  if (!world) return std::nullopt;
  const auto local =
      place_variables(environment, "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE");
  Identity identity = identity_at("jsrun", *world, local);
  identity.hostname = own_hostname();
  identity.job_name = fmt::format("jsrun/{}/{}/{}", variable(environment, "LSB_JOBID").value_or(""),
                                  variable(environment, "JSM_NAMESPACE_ID").value_or(""),
                                  variable(environment, "PMIX_NAMESPACE").value_or(""));
  identity.meeting = local && local->count == world->count ? Meeting::local : Meeting::pmix;
  return identity;
}

}  // namespace hvd

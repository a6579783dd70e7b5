// jsrun, the launcher of LSF. With Spectrum MPI it sets the variables of Open MPI; without it, only
// names of its own.
#include <fmt/core.h>

#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/variables.h"

namespace hvd {

std::optional<Identity> from_jsrun(const Environment& environment) {
  const auto world =
      rank_and_size_variables(environment, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE");
  if (!world) return std::nullopt;
  const auto local =
      rank_and_size_variables(environment, "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE");
  Identity identity = identity_at("jsrun", *world, local);
  identity.hostname = own_hostname();
  identity.job_name = fmt::format("jsrun/{}/{}/{}", variable(environment, "LSB_JOBID").value_or(""),
                                  variable(environment, "JSM_NAMESPACE_ID").value_or(""),
                                  variable(environment, "PMIX_NAMESPACE").value_or(""));
  identity.rendezvous =
      local && local->size == world->size ? RendezvousMethod::local : RendezvousMethod::pmix;
  return identity;
}

}  // namespace hvd

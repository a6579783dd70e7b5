// torchrun, python -m torch.distributed.launch, and operators that set the same variables. The
// names are generic, so RANK counts only together with MASTER_ADDR and MASTER_PORT.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/variables.h"

namespace hvd {

std::optional<Identity> from_torchrun(const Environment& environment) {
  const auto host = variable(environment, "MASTER_ADDR");
  const auto port = variable(environment, "MASTER_PORT");
  if (!host || !port) return std::nullopt;
  const auto world = rank_and_size_variables(environment, "RANK", "WORLD_SIZE");
  if (!world) return std::nullopt;
  const auto local = rank_and_size_variables(environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  const auto text = [&](const char* name) { return variable(environment, name).value_or(""); };
  Identity identity = identity_at("torchrun", *world, local);
  // Several agents may run on one machine, each with local ranks of its own.
  identity.hostname = own_hostname();
  if (local && !text("GROUP_RANK").empty())
    identity.hostname += fmt::format("/group{}", text("GROUP_RANK"));
  identity.job_name = fmt::format("torchrun/{}/{}/{}/{}", *host, *port, text("TORCHELASTIC_RUN_ID"),
                                  text("TORCHELASTIC_RESTART_COUNT"));
  identity.rendezvous =
      local && local->size == world->size ? RendezvousMethod::local : RendezvousMethod::caller;
  return identity;
}

}  // namespace hvd

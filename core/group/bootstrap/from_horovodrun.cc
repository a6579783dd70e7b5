// horovodrun, and whoever sets its variables by hand.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

constexpr const char* kStoreHost = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
constexpr const char* kStorePort = "HOROVOD_GLOO_RENDEZVOUS_PORT";

void read_store(const Environment& environment, Identity& identity) {
  const auto host = variable(environment, kStoreHost);
  const auto port = number_variable(environment, kStorePort, 1, 65535);
  if (host && port) {
    identity.store_host = *host;
    identity.store_port = static_cast<uint16_t>(*port);
    return;
  }
  if (host || port) {
    fail(Code::invalid_argument,
         fmt::format("{} is set but {} is not; one makes no sense without the other",
                     host ? kStoreHost : kStorePort, host ? kStorePort : kStoreHost));
  }
  if (identity.size > 1) {
    fail(
        Code::invalid_argument,
        fmt::format("HOROVOD_SIZE={}, but {} and {}, where the ranks meet, are not set; horovodrun "
                    "sets them",
                    identity.size, kStoreHost, kStorePort));
  }
}

}  // namespace

std::optional<Identity> from_horovodrun(const Environment& environment) {
  const auto world = place_variables(environment, "HOROVOD_RANK", "HOROVOD_SIZE");
  const auto local = place_variables(environment, "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE");
  const auto cross = place_variables(environment, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE");
  if (!world) return std::nullopt;
  Identity identity;
  identity.rank = world->index;
  identity.size = world->count;
  if (local) {
    identity.local_rank = local->index;
    identity.local_size = local->count;
  }
  if (cross) {
    identity.cross_rank = cross->index;
    identity.cross_size = cross->count;
  }
  if (identity.local_size > identity.size) {
    fail(Code::invalid_argument, fmt::format("HOROVOD_LOCAL_SIZE={} is more than HOROVOD_SIZE={}",
                                             identity.local_size, identity.size));
  }
  if (const auto name = variable(environment, "HOROVOD_HOSTNAME")) identity.hostname = *name;
  read_store(environment, identity);
  return identity;
}

}  // namespace hvd

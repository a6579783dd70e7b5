// horovodrun, and whoever sets its variables by hand.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/group/bootstrap/launchers.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

constexpr const char* kStoreHost = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
constexpr const char* kStorePort = "HOROVOD_GLOO_RENDEZVOUS_PORT";

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Who has a key needs no launcher to vouch for the others; ranks that have none find each other
/// only where the kernel tells whose they are.
Meeting meeting_of(const Environment& environment, const Identity& identity) {
  if (variable(environment, "HOROVOD_KEY_FD")) return Meeting::launcher;
  const bool has_secret = variable(environment, "HOROVOD_SECRET_FILE").has_value();
  return is_loopback(identity.store_host) && !has_secret ? Meeting::local : Meeting::address;
}

void read_store(const Environment& environment, Identity& identity) {
  const auto host = variable(environment, kStoreHost);
  const auto port = number_variable(environment, kStorePort, 1, 65535);
  if (host && port) {
    identity.store_host = *host;
    identity.store_port = static_cast<uint16_t>(*port);
    identity.meeting = meeting_of(environment, identity);
    identity.job_name = fmt::format("by hand/{}", *port);
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
  identity.launcher = variable(environment, "HOROVOD_KEY_FD") ? "horovodrun" : "HOROVOD_RANK";
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

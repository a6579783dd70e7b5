// horovodrun, and users who set its variables by hand.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/bootstrap/job_key.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/membership.h"
#include "core/bootstrap/variables.h"

namespace hvd {
namespace {

constexpr const char* kStoreHost = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
constexpr const char* kStorePort = "HOROVOD_GLOO_RENDEZVOUS_PORT";

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// With a secret, ranks may connect to any address. Without one they use the local rendezvous,
/// where the kernel tells the user of each process.
RendezvousMethod rendezvous_of(const Environment& environment, const Identity& identity) {
  if (variable(environment, kKeySocketVariable)) return RendezvousMethod::launcher;
  const bool has_secret = variable(environment, "HOROVOD_SECRET_FILE").has_value();
  return is_loopback(identity.store_host) && !has_secret ? RendezvousMethod::local
                                                         : RendezvousMethod::address;
}

/// Unique among the jobs on this machine. Ranks of one machine may spell its address differently,
/// so only the port counts there. At another machine, several jobs may use the same port.
std::string job_name_of(const Environment& environment, const Identity& identity) {
  if (const auto keeper = variable(environment, kKeySocketVariable))
    return fmt::format("horovodrun/{}", *keeper);
  if (identity.rendezvous == RendezvousMethod::local)
    return fmt::format("by hand/{}", identity.store_port);
  return fmt::format("by hand/{}/{}", identity.store_host, identity.store_port);
}

void read_store(const Environment& environment, Identity& identity) {
  const auto host = variable(environment, kStoreHost);
  const auto port = number_variable(environment, kStorePort, 1, 65535);
  if (host && port) {
    identity.store_host = *host;
    identity.store_port = static_cast<uint16_t>(*port);
    identity.rendezvous = rendezvous_of(environment, identity);
    identity.job_name = job_name_of(environment, identity);
    return;
  }
  if (host || port) {
    fail(Code::invalid_argument,
         fmt::format("{} is set but {} is not; set both or neither", host ? kStoreHost : kStorePort,
                     host ? kStorePort : kStoreHost));
  }
  if (identity.size > 1) {
    fail(Code::invalid_argument,
         fmt::format(
             "HOROVOD_SIZE={}, but {} and {}, the address where the ranks find each other, are "
             "not set; horovodrun sets them",
             identity.size, kStoreHost, kStorePort));
  }
}

}  // namespace

std::optional<Identity> from_horovodrun(const Environment& environment) {
  const auto world = rank_and_size_variables(environment, "HOROVOD_RANK", "HOROVOD_SIZE");
  const auto local =
      rank_and_size_variables(environment, "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE");
  const auto cross =
      rank_and_size_variables(environment, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE");
  if (!world) return std::nullopt;
  Identity identity;
  identity.rank = world->rank;
  identity.size = world->size;
  identity.launcher = variable(environment, kKeySocketVariable) ? "horovodrun" : "HOROVOD_RANK";
  if (local) {
    identity.local_rank = local->rank;
    identity.local_size = local->size;
  }
  if (cross) {
    identity.cross_rank = cross->rank;
    identity.cross_size = cross->size;
  }
  if (identity.local_size > identity.size) {
    fail(Code::invalid_argument, fmt::format("HOROVOD_LOCAL_SIZE={} is more than HOROVOD_SIZE={}",
                                             identity.local_size, identity.size));
  }
  if (const auto worker = worker_of(environment)) identity.slot = worker->slot;
  identity.generation = place_generation(environment);
  if (const auto name = variable(environment, "HOROVOD_HOSTNAME")) identity.hostname = *name;
  read_store(environment, identity);
  return identity;
}

}  // namespace hvd

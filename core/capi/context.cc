#include "core/capi/context.h"

#include <sched.h>
#include <unistd.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/capi/submission.h"
#include "core/group/bootstrap/job_key.h"
#include "core/group/bootstrap/wiring.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

/// Every local rank can have a core to itself, by the affinity that this process really has.
bool cores_to_spare(int local_ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  return CPU_COUNT(&allowed) >= local_ranks;
}

// The entry of a comma list of cores, one for each local rank.
std::optional<int> core_of(const std::string& cores, const Identity& identity) {
  if (cores.empty()) return std::nullopt;
  std::istringstream list(cores);
  std::string entry;
  for (int local_rank = 0; std::getline(list, entry, ','); ++local_rank) {
    if (local_rank == identity.local_rank) return std::stoi(entry);
  }
  fail(Code::invalid_argument, "HOROVOD_THREAD_AFFINITY=" + cores + " has no core for local rank " +
                                   std::to_string(identity.local_rank) +
                                   "; list one for each of the " +
                                   std::to_string(identity.local_size) + " local ranks");
}

bool is_homogeneous(const Topology& topology) {
  for (const auto& ranks : topology.host_ranks) {
    if (ranks.size() != topology.host_ranks.front().size()) return false;
  }
  return true;
}

// Once a job: horovodrun has said it already.
void warn_of_later_knobs(const Environment& environment, const Identity& identity) {
  if (identity.rank != 0 || environment.contains("HOROVOD_KEY_FD")) return;
  for (const KnobRow* row : later_in_use(environment))
    log(LogLevel::warning, std::string(row->env) + " is not in this version and has no effect");
}

}  // namespace

Context::Context(const Environment& environment, uint32_t generation)
    : process_(getpid()), knobs_(knobs_from(environment)) {
  const Identity identity = identity_from(environment);
  configure_log({knobs_.log_level, knobs_.log_hide_time, identity.rank});
  warn_of_later_knobs(environment, identity);
  const std::optional<int> core = core_of(knobs_.thread_affinity, identity);
  JobKey key;
  if (identity.size > 1) {
    key = read_job_key(environment);
    store_ = std::make_unique<StoreClient>(Address{identity.store_host, identity.store_port}, key,
                                           identity.rank, knobs_.start_timeout);
  }
  Wiring wiring = connect(identity, key, store_.get(), generation, knobs_);
  world_ = {identity.rank,
            identity.size,
            identity.local_rank,
            identity.local_size,
            identity.cross_rank,
            identity.cross_size,
            is_homogeneous(wiring.topology),
            generation};
  const DriverOptions options{.spare_cores = cores_to_spare(identity.local_size), .core = core};
  driver_ = std::make_unique<Driver>(
      std::make_unique<Engine>(std::move(wiring), knobs_, clock_,
                               [this](const Ending& ending) { tell(ending); }),
      options);
}

Context::~Context() { driver_.reset(); }  // before what tell() uses

bool Context::belongs_to_this_process() const { return process_ == getpid(); }

void Context::tell(const Ending& ending) noexcept {
  {
    const std::lock_guard lock(mutex_);
    ending_ = ending;
  }
  if (ending.interrupts) blame(ending);
}

// Before the first operation fails with the ending: the launcher can then tell the rank that failed
// from those that only followed.
void Context::blame(const Ending& ending) noexcept {
  if (!store_ || ending.rank == world_.rank || blamed_.exchange(true)) return;
  try {
    const std::string key =
        "ended/" + std::to_string(world_.generation) + "/" + std::to_string(world_.rank);
    store_->set(key, as_bytes(std::to_string(ending.rank) + " " + ending.text));
  } catch (const std::exception& error) {
    log(LogLevel::debug, std::string("the launcher could not be told of the end: ") + error.what());
  }
}

std::optional<Ending> Context::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

std::shared_ptr<Operation> Context::submit(const hvd_request& request) {
  Request made = make_request(request, world_, knobs_);
  std::shared_ptr<Operation> operation = made.operation;
  if (driver_->submit(std::move(made))) return operation;
  operation->handle.complete({});  // nobody has seen it
  if (const std::optional<Ending> ended = ending()) {
    blame(*ended);
    fail(ended->code, ended->text, ended->rank);
  }
  fail(Code::invalid_argument, "too many operations are in flight on this rank");
}

}  // namespace hvd

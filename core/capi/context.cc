#include "core/capi/context.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "core/backend/mpi/mpi_job.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/capi/submission.h"
#include "core/group/bootstrap/place.h"
#include "core/group/bootstrap/wiring.h"

namespace hvd {
namespace {

constexpr std::string_view kDynamicTimeline = "DYNAMIC";  // started when the script asks for it

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

void warn_of_overruled_choice(const Knobs& knobs, const Identity& identity) {
  const std::string warning = warning_of_choice(host_rules(knobs).allreduce);
  if (identity.rank == 0 && !warning.empty()) log(LogLevel::warning, warning);
}

/// Ascending, checked. `given`: none for all.
std::vector<int> ranks_of_group(std::vector<int> given, const hvd_world& world) {
  if (given.empty()) {
    given.resize(static_cast<size_t>(world.size));
    std::iota(given.begin(), given.end(), 0);
  }
  std::sort(given.begin(), given.end());
  const auto refuse = [&](const std::string& why) {
    fail(Code::invalid_argument, fmt::format("group of {}: {}", ranks_text(given), why));
  };
  if (given.front() < 0 || given.back() >= world.size)
    refuse(fmt::format("the ranks of this job are 0 to {}", world.size - 1));
  if (std::adjacent_find(given.begin(), given.end()) != given.end())
    refuse("a rank is there twice");
  if (!std::binary_search(given.begin(), given.end(), world.rank))
    refuse(fmt::format("rank {}, which is not one of them, must not make it", world.rank));
  return given;
}

/// Requests that are about to be submitted; if they are not, nobody has seen their operations.
class Unseen {
 public:
  explicit Unseen(size_t count) {
    requests_.reserve(count);
    operations_.reserve(count);
  }
  ~Unseen() {
    for (const auto& operation : operations_) operation->handle.complete({});
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

  void add(Request request) {
    operations_.push_back(request.operation);
    requests_.push_back(std::move(request));
  }
  std::span<Request> requests() { return requests_; }
  std::vector<std::shared_ptr<Operation>> take() { return std::exchange(operations_, {}); }

 private:
  std::vector<Request> requests_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

/// Who we are by the environment, unless the caller says so himself; and in which part of it all.
Identity identity_for(const Environment& environment, const StartOptions& options) {
  if (!options.place) {
    const Identity whole = identity_from(environment);
    return options.members.empty() ? whole : part_of(whole, options.members);
  }
  Identity identity;
  identity.launcher = "the communicator given to init";
  identity.rank = options.place->index;
  identity.size = options.place->count;
  identity.local_known = identity.cross_known = false;
  identity.hostname = own_hostname();
  identity.meeting = Meeting::caller;
  return identity;
}

hvd_world world_of(const Wiring& wiring) {
  const Identity& identity = wiring.identity;
  return {identity.rank,
          identity.size,
          identity.local_rank,
          identity.local_size,
          identity.cross_rank,
          identity.cross_size,
          is_homogeneous(wiring.topology),
          wiring.generation};
}

Knobs knobs_for(const Environment& environment, const StartOptions& options) {
  Knobs knobs = knobs_from(environment);
  knobs.dynamic_process_sets |= options.dynamic_process_sets;
  return knobs;
}

}  // namespace

Context::Context(const Environment& environment, uint32_t generation, const StartOptions& options)
    : knobs_(knobs_for(environment, options)) {
  Identity identity = identity_for(environment, options);
  configure_log({knobs_.log_level, knobs_.log_hide_time, identity.rank});
  warn_of_later_knobs(environment, identity);
  warn_of_overruled_choice(knobs_, identity);
  std::optional<mpi::Running> mpi;  // first, since the launcher introduces ranks of MPI best
  if (knobs_.cpu_operations == CpuOperationsChoice::mpi)
    mpi = mpi::start_mpi(environment, knobs_, identity);
  place_ = find_meeting_place(identity, environment, generation, knobs_, options.spread);
  Wiring wiring = connect(identity, place_.key, place_.of_this_job(), generation, knobs_,
                          terms_of_sets(options.process_sets, identity.size));
  if (place_.host) place_.host->all_have_met();
  complete_place(wiring.identity, wiring.cards);
  const std::optional<int> core = core_of(knobs_.thread_affinity, wiring.identity);
  world_ = world_of(wiring);
  roster_ = wiring.roster();
  spare_cores_ = roster_.cards.empty() || has_core_for_each(roster_.cards, world_.rank);
  if (mpi)
    carrier_ = carrier_of_job(*mpi, roster_.identity, place_.of_this_job(), generation, knobs_);
  start_timeline_of_knobs();
  const DriverOptions driving{.spare_cores = spare_cores_, .core = core};
  auto told = [this](const Ending& ending, bool interrupts) { tell(ending, interrupts); };
  driver_ = std::make_unique<Driver>(
      std::make_unique<Engine>(std::move(wiring), knobs_, clock_, told, &observer_, carrier_.get()),
      driving);
  for (const std::vector<int>& ranks : options.process_sets)
    change_sets(OperationKind::add_process_set, ranks, 0);
}

void Context::tell(const Ending& ending, bool interrupts) noexcept {
  if (carrier_ && ending.code != Code::shut_down) carrier_->abandon();
  if (interrupts) blame(ending);
}

// Before the first operation fails with the ending: the launcher can then tell the rank that failed
// from those that only followed.
void Context::blame(const Ending& ending) noexcept {
  const Identity& identity = roster_.identity;
  const bool launcher_listens = place_.store && identity.meeting == Meeting::launcher;
  if (!launcher_listens || ending.rank == world_.rank || blamed_.exchange(true)) return;
  try {
    const int cause = ending.rank == kNoRank ? kNoRank : identity.launcher_rank(ending.rank);
    const std::string key =
        fmt::format("ended/{}/{}", world_.generation, identity.launcher_rank(world_.rank));
    place_.store->set(key, as_bytes(fmt::format("{} {}", cause, ending.text)));
  } catch (const std::exception& error) {
    log(LogLevel::debug, std::string("the launcher could not be told of the end: ") + error.what());
  }
}

std::unique_ptr<BlockingGroup> Context::make_group(std::vector<int> given) {
  const std::vector<int> ranks = ranks_of_group(std::move(given), world_);
  if (ending()) refuse(Pushed::closed);
  int earlier = 0;
  {
    const std::lock_guard lock(making_groups_);
    earlier = groups_made_[ranks]++;
  }
  const NameHash hash = hash_name(fmt::format("{}", fmt::join(ranks, ",")));
  const GroupPlan plan{
      .ranks = ranks,
      .name = fmt::format("group/{:016x}{:016x}/{}/", hash.high, hash.low, earlier)};
  Wiring wiring = connect_group(roster_, plan, place_.key, place_.of_this_job(), knobs_);
  return std::make_unique<BlockingGroup>(std::move(wiring), ranks, knobs_, spare_cores_);
}

void Context::require_dynamic_sets(const std::string& doing) const {
  if (knobs_.dynamic_process_sets) return;
  fail(Code::invalid_argument,
       doing +
           " is not possible: process sets are fixed at init, unless "
           "HOROVOD_DYNAMIC_PROCESS_SETS=1 is set or init is given process_sets=\"dynamic\"");
}

int32_t Context::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  require_dynamic_sets("adding the process set " + to_text_of_ranks(ranks));
  const std::lock_guard lock(changing_sets_);
  const std::string why = process_sets().why_not(ranks);
  if (!why.empty()) {
    meet_for_nothing();
    fail(Code::invalid_argument, why);
  }
  return change_sets(OperationKind::add_process_set, ranks, 0);
}

void Context::remove_process_set(int32_t id) {
  require_dynamic_sets(fmt::format("removing process set {}", id));
  const std::lock_guard lock(changing_sets_);
  if (id == ProcessSets::kWorldId)
    fail(Code::invalid_argument, "the global process set cannot be removed");
  const auto set = process_sets().find(id);
  if (!set) fail(Code::invalid_argument, fmt::format("no process set has the id {}", id));
  change_sets(OperationKind::remove_process_set, set->ranks, set->group);
}

// Where this rank refuses a change by itself, others may not: then they are told, instead of
// waiting for it. Those that refuse alike meet in a barrier.
void Context::meet_for_nothing() {
  const auto met = agree_on_sets(OperationKind::barrier, {}, 0);
  const Outcome& outcome = met->handle.outcome();
  if (outcome.code != Code::ok && outcome.code != Code::mismatch)
    fail(outcome.code, outcome.text, outcome.rank);
}

int32_t Context::change_sets(OperationKind kind, const std::vector<int>& members,
                             GroupNumber target) {
  const auto changed = agree_on_sets(kind, members, target);
  const Outcome& outcome = changed->handle.outcome();
  if (outcome.code != Code::ok) fail(outcome.code, outcome.text, outcome.rank);
  if (carrier_ && std::ranges::binary_search(members, world_.rank)) {
    if (kind == OperationKind::add_process_set)
      carrier_->make_communicator(members);
    else
      carrier_->free_communicator(members);
  }
  return changed->number;
}

// All changes have one name, so that ranks that want different ones meet and are told.
std::shared_ptr<Operation> Context::agree_on_sets(OperationKind kind, std::vector<int> members,
                                                  GroupNumber target) {
  Request request;
  request.name = "process_sets";
  request.signature.name = hash_name(request.name);
  request.signature.kind = kind;
  request.signature.members = std::move(members);  // also of one that goes, for messages
  request.signature.target = target;
  request.operation = std::make_shared<Operation>();
  auto operation = start(std::move(request));
  wait(*operation);
  return operation;
}

std::shared_ptr<Operation> Context::submit(const hvd_request& request, bool has_handle) {
  Request made = make_request(request, world_.rank, process_sets(), knobs_);
  made.has_handle = has_handle;
  return start(std::move(made));
}

std::vector<std::shared_ptr<Operation>> Context::submit(std::span<const hvd_request> requests) {
  Unseen unseen(requests.size());
  for (const hvd_request& request : requests)
    unseen.add(make_request(request, world_.rank, process_sets(), knobs_));
  const Pushed pushed = driver_->submit(unseen.requests());
  if (pushed != Pushed::accepted) refuse(pushed);
  return unseen.take();
}

std::shared_ptr<Operation> Context::start(Request&& request) {
  std::shared_ptr<Operation> operation = request.operation;
  const Pushed pushed = driver_->submit(std::move(request));
  if (pushed == Pushed::accepted) return operation;
  operation->handle.complete({});  // nobody has seen it
  refuse(pushed);
}

void Context::refuse(Pushed why) {
  if (why == Pushed::closed) {
    const Ending ended = ending().value();
    blame(ended);
    fail(ended.code, ended.text, ended.rank);
  }
  fail(Code::invalid_argument,
       fmt::format("rank {}: more than {} operations are in flight; wait for some of them before "
                   "submitting more",
                   world_.rank, Inbox<Request, Ending>::kLimit));
}

// A trace that cannot be written is no reason not to train.
void Context::start_timeline_of_knobs() {
  if (knobs_.timeline.empty() || knobs_.timeline == kDynamicTimeline) return;
  try {
    start_timeline(knobs_.timeline, knobs_.timeline_mark_cycles);
  } catch (const Error& error) {
    log(LogLevel::error, error.what());
  }
}

void Context::start_timeline(const std::string& path, bool mark_cycles) {
  if (knobs_.timeline.empty()) {
    fail(Code::invalid_argument,
         "the timeline can only be started in a job that was initialised with "
         "HOROVOD_TIMELINE=DYNAMIC, or with the name of a file there");
  }
  timeline_.start(timeline_path(path, world_.rank), mark_cycles);
}

}  // namespace hvd

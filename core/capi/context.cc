#include "core/capi/context.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/bootstrap/job_key.h"
#include "core/bootstrap/local_ranks.h"
#include "core/bootstrap/wiring.h"
#include "core/capi/backend_factory.h"
#include "core/capi/job_lookout.h"
#include "core/capi/submission.h"
#include "core/transport/job_number.h"

namespace hvd {
namespace {

// The launcher answers within a millisecond. If it cannot be reached, the error must not wait.
constexpr std::chrono::milliseconds kReportTimeout{100};
constexpr std::string_view kDynamicTimeline = "DYNAMIC";  // started by hvd_start_timeline()

// Returns the entry of this rank in a comma-separated list of cores, one per local rank.
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

// Warns once per job; horovodrun has warned already if it is the launcher.
void warn_of_later_knobs(const Environment& environment, const Identity& identity) {
  if (identity.rank != 0 || environment.contains(kKeySocketVariable)) return;
  for (const KnobRow* row : later_in_use(environment))
    log(LogLevel::warning, std::string(row->env) + " is not in this version and has no effect");
}

void warn_of_overruled_choice(const Knobs& knobs, const Identity& identity) {
  const std::string warning = warning_of_choice(host_rules(knobs).allreduce);
  if (identity.rank == 0 && !warning.empty()) log(LogLevel::warning, warning);
}

/// Returns the ranks ascending and checked. `given`: empty for all ranks.
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
    refuse("it has a duplicate rank");
  if (!std::binary_search(given.begin(), given.end(), world.rank))
    refuse(fmt::format("rank {} is not a member and must not create it", world.rank));
  return given;
}

/// Returns the name of a group in what a rank tells of its calls. Equal on all its ranks.
std::string shown_name_of_group(const std::vector<int>& ranks, const std::string& name,
                                int earlier) {
  const std::string kind =
      name.empty() ? "hvd.Group(" + to_text_of_ranks(ranks) + ")" : fmt::format("group {}", name);
  return earlier == 0 ? kind : fmt::format("{}, number {}", kind, earlier + 1);
}

/// Requests before submission. Completes their operations if they are not submitted.
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
    operations_.push_back(request.completion);
    requests_.push_back(std::move(request));
  }
  std::span<Request> requests() { return requests_; }
  std::vector<std::shared_ptr<Completion>> take() { return std::exchange(operations_, {}); }

 private:
  std::vector<Request> requests_;
  std::vector<std::shared_ptr<Completion>> operations_;
};

/// The identity from the environment, or from the caller of init if it provides rank and size.
Identity identity_for(const Environment& environment, const StartOptions& options) {
  if (!options.world) {
    const Identity whole = identity_from(environment);
    return options.members.empty() ? whole : part_of(whole, options.members);
  }
  Identity identity;
  identity.launcher = "the communicator given to init";
  identity.rank = options.world->rank;
  identity.size = options.world->size;
  identity.local_known = identity.cross_known = false;
  identity.hostname = own_hostname();
  identity.job_name = "communicator/" + random_digits();  // shared only with forked children
  identity.rendezvous = RendezvousMethod::caller;
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

/// From here on others may ask where this process is, also while it looks for the other ranks.
RankBoard* board_of_this_process(const Knobs& knobs, const Identity& identity) {
  RankBoard* const board = RankBoard::of_this_process(static_cast<int>(knobs.dump_signal));
  if (board == nullptr) return nullptr;
  board->arm();
  board->set_rank(identity.rank);
  return board;
}

/// The stage of the process in init.
class Starting {
 public:
  Starting() { RankBoard::enter(RankStage::in_init); }
  ~Starting() {
    if (!has_connected_) RankBoard::enter(RankStage::init_failed);
  }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  /// Before the engine starts, which may end soon.
  void connected() {
    has_connected_ = true;
    RankBoard::enter(RankStage::running);
  }

 private:
  bool has_connected_ = false;
};

/// Tells the launcher that this rank fails because of `cause`, so that it can distinguish the rank
/// that failed first from the others.
void report_cause(const JobStore& store, const Identity& identity, const Ending& cause) noexcept
    try {
  if (!store.store || identity.rendezvous != RendezvousMethod::launcher) return;
  const int rank = cause.rank == kNoRank ? kNoRank : identity.launcher_rank(cause.rank);
  const std::string key =
      fmt::format("ended/{}/{}", store.generation, identity.launcher_rank(identity.rank));
  const std::string said = cause.silence.empty() ? fmt::format("{} {}", rank, cause.text)
                                                 : fmt::format("{}! {}", rank, cause.silence);
  store.store->set_within(key, as_bytes(said), kReportTimeout);
} catch (const std::exception& error) {
  log(LogLevel::debug,
      std::string("cannot report the end of the job to the launcher: ") + error.what());
}

/// A boundary: ranks whose time is over later are not told that this one is lost, but which one it
/// misses.
Wiring connect_or_report(const Identity& identity, const JobStore& store, const Knobs& knobs,
                         const Terms& terms) try {
  return connect(identity, store.key, store.of_this_job(), store.generation, knobs, terms);
} catch (const Error& error) {
  if (error.rank() != kNoRank && error.rank() != identity.rank)
    report_cause(store, identity, {error.code(), error.rank(), error.what()});
  fail(error.code(), error.what(), error.rank());
}

Knobs knobs_for(const Environment& environment, const StartOptions& options) {
  Knobs knobs = knobs_from(environment);
  knobs.dynamic_process_sets |= options.dynamic_process_sets;
  return knobs;
}

}  // namespace

Context::Context(const Environment& environment, uint32_t inits, const StartOptions& options)
    : Context(environment, inits, options, identity_for(environment, options)) {}

Context::Context(const Environment& environment, uint32_t inits, const StartOptions& options,
                 Identity identity)
    : lock_(identity),
      knobs_(knobs_for(environment, options)),
      board_(board_of_this_process(knobs_, identity)) {
  Starting starting;
  configure_log({knobs_.log_level, knobs_.log_hide_time, identity.rank});
  warn_of_later_knobs(environment, identity);
  warn_of_overruled_choice(knobs_, identity);
  const BackendFactory factory(environment, knobs_, identity, options.nccl_of_python);
  store_ = open_job_store(identity, environment, inits, knobs_, options.rendezvous);
  Wiring wiring = connect_or_report(identity, store_, knobs_,
                                    terms_of_sets(options.process_sets, identity.size));
  if (store_.host) store_.host->all_connected();
  complete_local_ranks(wiring.identity, wiring.cards);
  const std::optional<int> core = core_of(knobs_.thread_affinity, wiring.identity);
  world_ = world_of(wiring);
  roster_ = wiring.roster();
  spare_cores_ = wiring.has_spare_cores();
  start_timeline_of_knobs();
  const ProgressOptions driving{.spare_cores = spare_cores_, .core = core};
  auto make_backends = [&] {
    return factory.make({roster_.identity, store_.of_this_job(), store_.generation, spare_cores_});
  };
  auto told = [this](const Ending& ending, bool interrupts) { tell(ending, interrupts); };
  starting.connected();
  progress_ = std::make_unique<ProgressThread>(
      std::make_unique<Engine>(std::move(wiring), knobs_, clock_, told, make_backends, &observer_,
                               board_),
      driving);
  for (const std::vector<int>& ranks : options.process_sets)
    change_sets(OperationKind::add_process_set, ranks, 0);
}

void Context::tell(const Ending& ending, bool interrupts) noexcept {
  RankBoard::end_running(ending.code == Code::shut_down ? RankStage::over : RankStage::failed);
  if (interrupts) blame(ending);
}

// Before the first operation fails with it.
void Context::blame(const Ending& ending) noexcept {
  if (ending.rank == world_.rank || blamed_.exchange(ending.code) == ending.code) return;
  report_cause(store_, roster_.identity, ending);
}

std::optional<Error> Context::shutdown() {
  const auto before = ending();
  RankBoard::enter(RankStage::in_shutdown);
  progress_->shutdown();
  RankBoard::enter(RankStage::after_shutdown);
  timeline_.stop();
  lock_.release();
  const Ending ended = ending().value();
  const bool was_lost = before && before->code != Code::shut_down;
  if (was_lost || ended.code == Code::shut_down) return std::nullopt;
  blame(ended);
  return Error(ended.code, ended.text, ended.rank);
}

std::unique_ptr<BlockingGroup> Context::make_group(std::vector<int> given,
                                                   const std::string& name) {
  const std::vector<int> ranks = ranks_of_group(std::move(given), world_);
  if (ending()) refuse_as_ended("a new group");
  int earlier = 0;
  {
    const std::lock_guard lock(making_groups_);
    earlier = groups_made_[{ranks, name}]++;
  }
  const NameHash hash = hash_name(fmt::format("{} {}", fmt::join(ranks, ","), name));
  const GroupPlan plan{
      .ranks = ranks,
      .name = fmt::format("{}{:016x}{:016x}/{}/", kKeysOfGroup, hash.high, hash.low, earlier)};
  const std::string shown = shown_name_of_group(ranks, name, earlier);
  const NotedCall noted(group_calls(), {"the creation of " + shown, ranks, clock_.now()});
  Wiring wiring = connect_group(roster_, plan, store_.key, store_.of_this_job(), knobs_);
  auto made = std::make_unique<BlockingGroup>(std::move(wiring), ranks, knobs_, spare_cores_);
  made->look_out_by(std::make_unique<JobLookout>(weak_from_this(), shown, ranks));
  return made;
}

std::optional<Error> Context::loss_of_one_of(std::span<const int> ranks) {
  const auto ended = ending();
  const bool is_loss = ended && ended->code == Code::peer_lost;
  if (!is_loss || std::ranges::find(ranks, ended->rank) == ranks.end()) return std::nullopt;
  blame(*ended);
  return Error(ended->code, ended->text, ended->rank);
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

// Called if this rank rejects a change of process sets. If all ranks reject it, they meet in a
// barrier. Otherwise the ranks that did not reject it get a mismatch error instead of waiting.
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
  if (!std::ranges::binary_search(members, world_.rank)) return changed->number;
  progress_->backends().for_each([&](Backend& backend) {
    if (kind == OperationKind::add_process_set)
      backend.make_group(members);
    else
      backend.free_group(members);
  });
  return changed->number;
}

// All changes have the same name, so ranks that request different changes get a mismatch error.
std::shared_ptr<Completion> Context::agree_on_sets(OperationKind kind, std::vector<int> members,
                                                   GroupNumber target) {
  Request request;
  request.name = "process_sets";
  request.signature.name = hash_name(request.name);
  request.signature.operation.kind = kind;
  request.signature.members = std::move(members);  // also for a removal, for messages
  request.signature.target = target;
  request.completion = std::make_shared<Completion>();
  auto operation = start(std::move(request));
  wait(*operation);
  return operation;
}

std::shared_ptr<Completion> Context::submit(const hvd_request& request, bool has_handle) {
  ReadyPoints ready(progress_->backends());
  Request made = make_request(request, world_.rank, process_sets(), knobs_, ready);
  made.has_handle = has_handle;
  return start(std::move(made));
}

std::vector<std::shared_ptr<Completion>> Context::submit(std::span<const hvd_request> requests) {
  Unseen unseen(requests.size());
  ReadyPoints ready(progress_->backends());
  for (const hvd_request& request : requests)
    unseen.add(make_request(request, world_.rank, process_sets(), knobs_, ready));
  if (const auto refusal = progress_->submit(unseen.requests())) refuse(*refusal);
  return unseen.take();
}

std::shared_ptr<Completion> Context::start(Request&& request) {
  std::shared_ptr<Completion> operation = request.completion;
  const auto refusal = progress_->submit(std::move(request));
  if (!refusal) return operation;
  operation->handle.complete({});  // the caller does not get it
  refuse(*refusal);
}

void Context::refuse(const Refusal& refusal) {
  switch (refusal.why) {
    case Refusal::Why::closed:
      refuse_as_ended(quoted(*refusal.request));
    case Refusal::Why::full:
      fail(Code::invalid_argument,
           fmt::format("rank {}: more than {} operations are in flight; wait for some of them "
                       "before submitting more",
                       world_.rank, Inbox<Request, Ending>::kLimit));
    case Refusal::Why::name_in_flight:
      fail(Code::invalid_argument,
           fmt::format("{} \"{}\": an operation of this name is still in flight on rank {}; wait "
                       "for it, or use a different name",
                       name_of(refusal.request->signature.operation.kind), refusal.request->name,
                       world_.rank));
  }
  HVD_ASSERT(false && "a reason");
}

void Context::refuse_as_ended(const std::string& what) {
  const Ending ended = ending().value();
  blame(ended);
  fail(ended.code, what + ": " + ended.text, ended.rank);
}

// The job continues if the trace cannot be written.
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
         "the timeline can only be started if HOROVOD_TIMELINE was set at init, to DYNAMIC or to "
         "the name of a file");
  }
  timeline_.start(timeline_path(path, world_.rank), mark_cycles);
}

}  // namespace hvd

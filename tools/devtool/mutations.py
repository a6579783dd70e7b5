"""Guards of the runtime and of the elastic launcher against faults, each with a change of a source
that removes it. The simulators must fail then; `./dev test mutants` tests that. The rules of the
negotiation are in core/sim/without.h."""

from __future__ import annotations

from dataclasses import dataclass

JOBS = "WorldProgram.EveryOperation*"
SILENCE = "WorldSilence.*"
CONNECTING = "Connecting.*"
#: Not cases of test_sim, but jobs with the decisions of the launcher (tests/elastic).
ELASTIC = "elastic"


@dataclass(frozen=True)
class Mutation:
    """`guard`: what does not hold without it. `find` occurs once in `file`. `found_by`: the cases
    of test_sim that fail within `seeds` seeds, or ELASTIC."""

    guard: str
    file: str
    find: str
    replace: str
    found_by: str = JOBS
    seeds: int = 5000


MUTATIONS = (
    Mutation(
        guard="a rank that was given up is told which rank gave it up",
        file="core/engine/control.cc",
        find=("  report_loss(rank, why);\n  forget(rank);\n"),
        replace=("  forget(rank);\n  report_loss(rank, why);\n"),
        found_by=SILENCE,
        seeds=100,
    ),
    Mutation(
        guard="what others tell is read before a rank is blamed",
        file="core/engine/engine.cc",
        find="  const bool blames_another = error.rank() != kNoRank &&",
        replace="  const bool blames_another = false &&",
        seeds=60000,
    ),
    Mutation(
        guard="a rank hears that its child has given it up",
        file="core/engine/control.cc",
        find=(
            "  why_given_up_ = up.lost_why;\n"
            "  if (hub_->root() == nullptr) hub_->lost_parent(rank_, up.lost_why);\n"
        ),
        replace="",
        found_by=SILENCE,
        seeds=300,
    ),
    Mutation(
        guard="a rank that drains hears that its child has given it up",
        file="core/engine/control.cc",
        find="  why_given_up_ = up.lost_why;\n",
        replace="",
        found_by=SILENCE,
        seeds=300,
    ),
    Mutation(
        guard="a rank tells its neighbours that it runs",
        file="core/engine/engine.cc",
        find="  control_.greet();\n",
        replace="",
        found_by=SILENCE,
        seeds=100,
    ),
    Mutation(
        guard="a beat that comes late counts as one",
        file="core/engine/heartbeat.cc",
        find=("  next_beat_ = now + period_;\n  return judge"),
        replace=("  next_beat_ = *next_beat_ + period_;\n  return judge"),
    ),
    Mutation(
        guard="a rank without operations asks when it is asked",
        file="core/engine/heartbeat.cc",
        find="if (!pending && !is_asked) {",
        replace="if (!pending) {",
        found_by=SILENCE,
        seeds=100,
    ),
    Mutation(
        guard="a rank without operations answers",
        file="core/engine/control.cc",
        find="  if (!parting_) neighbour.channel->send(FrameKind::beat, {kAnswer});\n",
        replace="",
        found_by=SILENCE,
        seeds=100,
    ),
    Mutation(
        guard="a rank that drains hears of losses that others have reported",
        file="core/engine/engine.cc",
        find="  if (state_ == State::draining) heed_reports();\n",
        replace="",
    ),
    Mutation(
        guard="ranks of a host are told who is lost before one of them ends",
        file="core/engine/engine.cc",
        find="connections_.report_loss(culprit_of(ending.rank));",
        replace=";",
        found_by="WorldSets.ARankThatFails*",
        seeds=40,
    ),
    Mutation(
        guard="a silent rank is told that it was given up while the job ends",
        file="core/engine/engine.cc",
        find="    connections_.dismiss(silence.rank);\n",
        replace="",
        seeds=20000,
    ),
    Mutation(
        guard="a rank that has asked for the end of the job gives silent ranks up",
        file="core/engine/engine.cc",
        find="    awaits_end_ = true;\n",
        replace="",
        found_by=SILENCE,
        seeds=100,
    ),
    Mutation(
        guard="silence ends the wait for a rank",
        file="core/engine/engine.cc",
        find="  if (const auto silence = heartbeat_.check(pending)) give_up(*silence);\n",
        replace="  heartbeat_.check(pending);\n",
    ),
    Mutation(
        guard="the ranks below learn of a loss at once",
        file="core/engine/control.cc",
        find="if (hub_->root() == nullptr) hub_->lost_parent(rank, why);",
        replace="",
    ),
    Mutation(
        guard="requests that wait for agreement end with the job",
        file="core/engine/engine.cc",
        find="  end_requests(*ending_);\n",
        replace="",
    ),
    Mutation(
        guard="requests whose data is moved end with the job",
        file="core/engine/engine.cc",
        find="if (request.completion || request.is_launched) finish(",
        replace="if (false) finish(",
    ),
    Mutation(
        guard="no batch goes on after a loss",
        file="core/engine/engine.cc",
        find="  runner_.drop_all();\n",
        replace="",
    ),
    Mutation(
        guard="a name is free when its operation has ended",
        file="core/engine/engine.cc",
        find="if (!is_launched) names_.remove(std::span(&request, 1));",
        replace="",
    ),
    Mutation(
        guard="memory is released once",
        file="core/engine/engine.cc",
        find="  if (request.release) request.release();\n",
        replace="  if (request.release) request.release(), request.release();\n",
    ),
    Mutation(
        guard="the goodbye of a rank that ends after a loss says who is lost",
        file="core/engine/engine.cc",
        find="    connections_.give_up(culprit_of(ending_->rank));\n",
        replace="    connections_.say_goodbye();\n",
    ),
    Mutation(
        guard="a rank that closes does not wait for a lost one for ever",
        file="core/engine/engine.cc",
        find="if (!connections_.parted(is_lost()) && clock_.now() < closing_until_) return moved;",
        replace="if (!connections_.parted(is_lost())) return moved;",
    ),
    Mutation(
        guard="a rank that closes does not wait for one that has closed before",
        file="core/transport/channel.cc",
        find="  if (goodbye_received_ && goodbye_sent_ && unsent_bytes_ > 0) look_for_end();\n",
        replace="",
        found_by="World.RanksThatDrain*",
        seeds=48,
    ),
    Mutation(
        guard="the first connection of a rank is kept",
        file="core/bootstrap/peers.cc",
        find="    if (awaited_.erase(arrival.hello.rank) == 1) {\n",
        replace="    awaited_.erase(arrival.hello.rank);\n    {\n",
        found_by=CONNECTING,
        seeds=1000,
    ),
    Mutation(
        guard="one handshake with a rank at a time",
        file="core/bootstrap/peers.cc",
        find="    if (attempt.proving || attempt.connected.empty()) return;\n",
        replace="    if (attempt.connected.empty()) return;\n",
        found_by=CONNECTING,
        seeds=1000,
    ),
    Mutation(
        guard="no worker is started in the slot of one that has not ended",
        file="launcher/elastic/elastic.cc",
        find=(
            "    for (const WorkerId& worker : state_.dismissed) "
            "taken.insert({worker.host, worker.slot});\n"
        ),
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a generation waits for all its members",
        file="launcher/elastic/elastic.cc",
        find="    if (count(Standing::running) == 0) begin_generation();\n",
        replace="    if (count(Standing::asking) > 0) begin_generation();\n",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a generation has the minimum of ranks",
        file="launcher/elastic/elastic.cc",
        find="if (stay.size() + join.size() < static_cast<size_t>(state_.settings.min)) return;",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a job with too few ranks ends",
        file="launcher/elastic/elastic.cc",
        find="    if (!state_.over) look_for_shortage();\n",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="the pause of a host ends",
        file="launcher/elastic/elastic.cc",
        find="    end_cooldowns();\n",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="the silence of a host is judged once",
        file="launcher/elastic/elastic.cc",
        find=(
            "    std::erase_if(state_.silent_since,\n"
            "                  [this](const auto& entry) "
            "{ return now_ >= entry.second + kNoNews; });\n"
        ),
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="the other members of a silent host are given up",
        file="launcher/elastic/elastic.cc",
        find="    give_up_silent_hosts();\n",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="what was given up asks in vain",
        file="launcher/elastic/elastic.cc",
        find="    state_.workers.erase(worker);\n    state_.dismissed.insert",
        replace="    state_.dismissed.insert",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="no worker is started on a host where two have failed",
        file="launcher/elastic/elastic.cc",
        find="    if (state_.settings.cooldown || host->failures >= kFailuresUntilDropped)\n",
        replace="    if (state_.settings.cooldown)\n",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a newcomer with another version does not join",
        file="launcher/elastic/elastic.cc",
        find="    reject_misfits();\n",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="no member waits for one that leaves",
        file="launcher/elastic/elastic.cc",
        find=(
            "    give_up(event.worker, "
            'fmt::format("{} leaves at a commit", name_of(event.worker)));\n'
        ),
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a job does not end before those that have left it",
        file="launcher/elastic/elastic.cc",
        find="if (state_.leaving.empty()) return end(",
        replace="return end(",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="no generation begins after the last reset",
        file="launcher/elastic/elastic.cc",
        find="    if (no_more_resets(state_))\n",
        replace="    if (false)\n",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="no worker is started after the last reset",
        file="launcher/elastic/elastic.cc",
        find="    if (no_more_resets(state_)) return;\n    for (auto live",
        replace="    for (auto live",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="no member is told to ask after the last reset",
        file="launcher/elastic/elastic.cc",
        find="if (count(Standing::running) == 0 || no_more_resets(state_)) return;",
        replace="if (count(Standing::running) == 0) return;",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="hosts that were removed have no slots",
        file="launcher/elastic/elastic.cc",
        find="      gone.slots = 0;\n",
        replace="",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="members on slots that were removed are not in the next generation",
        file="launcher/elastic/elastic.cc",
        find="(has_slot(worker) ? stay : leave)",
        replace="stay",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="the lowest rank that is left becomes rank 0",
        file="launcher/worker/assignment.cc",
        find="return std::tuple(lowest_on[worker.host], worker.host, rank_before, worker.slot);",
        replace="return std::tuple(lowest_on[worker.host], worker.host, worker.slot);",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a stopped member is given up",
        file="launcher/elastic/elastic.cc",
        find="if (search == nullptr) return;",
        replace="if (search == nullptr || true) return;",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a member that is stopped for a moment is not given up",
        file="launcher/elastic/elastic.cc",
        find="for (const WorkerId& worker : search->answer(event.workers)) {",
        replace="for (const WorkerId& worker : event.workers) {",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="stopped members are looked for",
        file="launcher/elastic/elastic.cc",
        find="    actions_.push_back(LookForStopped{only_in_init});\n",
        replace="    static_cast<void>(only_in_init);\n",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="a wait is explained once",
        file="launcher/elastic/elastic.cc",
        find="if (!wait.is_explained && now_ >= explains_at(state_)) {",
        replace="if (now_ >= explains_at(state_)) {",
        found_by=ELASTIC,
        seeds=1000,
    ),
    Mutation(
        guard="--chaos spares the last rank with the state",
        file="launcher/elastic/elastic.cc",
        find="if (members.size() < 2) return ",
        replace="if (members.empty()) return ",
        found_by=ELASTIC,
        seeds=1000,
    ),
)

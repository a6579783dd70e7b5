#include "launcher/process/keeper.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/process_tree.h"
#include "core/transport/job_number.h"

namespace hvd::launcher {
namespace {

/// One scan of the parents may miss that one of them has just ended and its children moved to
/// another parent.
constexpr int kLooks = 3;

/// Processes can leave a session but not join one, so all processes in our session are below us.
bool is_in_our_session(pid_t process) {
  return process != 0 && process != ::getpid() && ::getsid(process) == ::getpid();
}

}  // namespace

std::string make_keeper_name() { return "horovod-keeper-" + random_digits(); }

Keeper::Keeper(const std::string& name, const JobKey& key)
    : key_(key), listener_(try_listen_unix(name)) {}

void Keeper::add(int rank, uint32_t generation, pid_t process) {
  std::erase_if(ranks_, [rank](const RankHere& one) { return one.rank == rank; });
  ranks_.push_back({rank, generation, process, 0});
}

void Keeper::forget(pid_t process) {
  for (RankHere& one : ranks_)
    if (one.process == process) one.process = 0;
}

bool Keeper::answer() {
  for (int visitors = 0; visitors < kVisitorsPerTurn; ++visitors) {
    const Visitor visitor = accept_visitor(listener_);
    if (!visitor.socket) return !is_out_of_resources(errno);
    // A process of another user gets no answer and is not logged: it can ask as often as it likes.
    if (visitor.is_of_this_user()) answer_shortly(visitor, to_bytes(answer_to(visitor)));
  }
  return true;
}

KeyAnswer Keeper::answer_to(const Visitor& visitor) {
  const auto request = key_request_of(visitor.name);
  if (!request) return {.refusal = "the request is from another version of horovod"};
  RankHere* const rank = find(request->rank);
  if (rank == nullptr)
    return {.refusal = fmt::format("rank {} is not on this host", request->rank)};
  std::string why = refusal(visitor.peer->process, *rank);
  if (!why.empty()) return {.refusal = std::move(why)};
  KeyAnswer answer{.generation = job_number(rank->generation, rank->begun)};
  if (request->begins) answer = begin(*request, *rank);
  if (answer.refusal.empty()) answer.key = key_;
  return answer;
}

KeyAnswer Keeper::begin(const KeyRequest& request, RankHere& rank) {
  const uint32_t generation = request.generation.value_or(rank.generation);
  if (generation < rank.generation || generation > kMaxGeneration)
    return {.refusal = fmt::format("this process has its place in generation {}, but the worker in "
                                   "slot {} is in generation {}",
                                   generation, rank.rank, rank.generation)};
  if (generation > rank.generation) rank.begun = 0;
  rank.generation = generation;
  if (rank.begun == kMaxBegun)
    return {.refusal = fmt::format(
                "rank {} has been initialized {} times, which is the limit; start a new job",
                rank.rank, kMaxBegun)};
  ++rank.begun;
  return {.generation = job_number(rank.generation, rank.begun)};
}

std::string Keeper::refusal(pid_t asker, const RankHere& rank) const {
  if (asker == rank.process && asker != 0) return "";
  const bool is_visible = processes_are_visible();
  for (int look = 0; is_visible && look < kLooks; ++look) {
    for (const pid_t process : processes_above(asker)) {
      if (process == rank.process || process == ::getpid()) return "";
      const auto other = std::ranges::find(ranks_, process, &RankHere::process);
      if (other != ranks_.end()) {
        return fmt::format("process {} is a descendant of rank {}, not of rank {}", asker,
                           other->rank, rank.rank);
      }
    }
  }
  if (is_in_our_session(asker)) return "";
  if (!is_visible) {
    return fmt::format(
        "cannot verify that process {} is a descendant of rank {}, since /proc does not show the "
        "PID namespace of horovodrun: mount it (mount -t proc proc /proc), or start the process "
        "without its own session",
        asker, rank.rank);
  }
  return fmt::format(
      "process {} was not started by rank {} ({}): only that process and its descendants can be "
      "the rank",
      asker, rank.rank,
      rank.process == 0 ? "which has ended" : fmt::format("process {}", rank.process));
}

Keeper::RankHere* Keeper::find(int rank) {
  const auto found = std::ranges::find(ranks_, rank, &RankHere::rank);
  return found == ranks_.end() ? nullptr : &*found;
}

}  // namespace hvd::launcher

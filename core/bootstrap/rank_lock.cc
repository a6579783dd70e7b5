#include "core/bootstrap/rank_lock.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/process_tree.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

/// In case other processes fill the queue, or the holder has bound the name but does not listen
/// yet.
constexpr std::chrono::milliseconds kPatience{1000};
constexpr int kPauseMilliseconds = 1;

std::string lock_name(const Identity& identity) {
  if (identity.job_name.empty()) return "";
  const NameHash hash =
      hash_name(fmt::format("{}/{}/{}", ::geteuid(), identity.job_name, identity.process_number()));
  return fmt::format("horovod-rank-{:016x}{:016x}", hash.high, hash.low);
}

/// The process that listens; nothing if there is none.
std::optional<PeerProcess> holder_of(const std::string& name) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const FileDescriptor socket = try_connect_unix(name, deadline);
  if (!socket && errno == ECONNREFUSED) return std::nullopt;
  const PeerProcess unknown{.user = ::geteuid(), .process = 0};
  return socket ? peer_at(socket).value_or(unknown) : unknown;
}

/// Not a process of another user, which may take any name, nor one that has ended, whose socket a
/// child that was not made by fork() may have inherited.
bool is_a_rank(const PeerProcess& holder) {
  if (holder.user != ::geteuid()) return false;
  return holder.process == 0 || ::kill(holder.process, 0) == 0 || errno != ESRCH;
}

bool is_above_us(pid_t process) {
  if (process == ::getppid()) return true;
  return processes_are_visible() && std::ranges::count(processes_above(::getpid()), process) != 0;
}

[[noreturn]] void refuse(const PeerProcess& holder, int rank) {
  const std::string process =
      holder.process == 0 ? "another process" : fmt::format("process {}", holder.process);
  if (holder.process != 0 && is_above_us(holder.process)) {
    fail(Code::invalid_argument,
         fmt::format("this process is a child of rank {}, not a rank: {}, above this one ({}), has "
                     "called init and is the rank until it calls shutdown or ends. If this process "
                     "imports the script again (a data loader's worker, spawn, forkserver), call "
                     "init below `if __name__ == \"__main__\":` alone; if this process is to be "
                     "the rank, its parent must not call init",
                     rank, process, ::getpid()),
         rank);
  }
  fail(Code::invalid_argument,
       fmt::format("this process ({}) is not rank {}: {} is, until it calls shutdown or ends; only "
                   "one process at a time can be a rank",
                   ::getpid(), rank, process),
       rank);
}

void require_nobody_at(const std::string& name, int rank) {
  if (name.empty()) return;
  const auto holder = holder_of(name);
  if (holder && is_a_rank(*holder)) refuse(*holder, rank);
}

FileDescriptor take_lock(const std::string& name, int rank) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    FileDescriptor listener = try_listen_unix(name);
    if (listener) return listener;
    if (errno != EADDRINUSE) fail_errno("locking this rank");
    const auto holder = holder_of(name);
    if (holder && is_a_rank(*holder)) refuse(*holder, rank);
    if (holder) break;
    ::poll(nullptr, 0, kPauseMilliseconds);
  }
  log(LogLevel::warning,
      fmt::format(
          "rank {} is not locked, so init in its child processes is not detected: a process "
          "of another user, or one that has ended, holds the name of the lock",
          rank));
  return {};
}

}  // namespace

RankLock::RankLock(const Identity& identity)
    : rank_(identity.process_number()),
      name_(lock_name(identity)),
      listener_(name_.empty() ? FileDescriptor() : take_lock(name_, rank_)) {}

void RankLock::require_free() const { require_nobody_at(name_, rank_); }

void require_free(const Identity& identity) {
  require_nobody_at(lock_name(identity), identity.process_number());
}

}  // namespace hvd

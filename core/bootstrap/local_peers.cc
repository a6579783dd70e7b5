#include "core/bootstrap/local_peers.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/assert.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/bootstrap/peer_card.h"
#include "core/transport/gate.h"
#include "core/transport/process_watch.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr const char* kPurpose = "segment";
constexpr size_t kControlRingBytes = 64 * KiB;

/// Published instead of the name of the leader's socket, before the reason, when it has failed: the
/// second one if it has lost another rank, the third one if its time was over. An elastic job goes
/// on after these two.
constexpr std::string_view kFailureMark = "failed: ", kLossMark = "lost: ", kLateMark = "late: ";
constexpr uint64_t kMembersTag = 0, kLossTag = 1;
constexpr std::chrono::seconds kReasonTimeout{1};

/// After "rank 1 is lost: " in errors of the connection to it.
constexpr const char* kReceivingMemory = "receiving the shared memory of this host";
constexpr const char* kSendingMemory = "sending the shared memory of this host";
constexpr const char* kReceivingProcess = "receiving the descriptor of its process";
constexpr const char* kSendingProcess = "sending the descriptor of this process";

/// The two descriptors that are sent for each rank.
struct Member {
  FileDescriptor process;
  FileDescriptor doorbell;
};

/// Fails as with `error`, by which the connection to `rank` has ended.
[[noreturn]] void fail_naming(int rank, const Error& error) {
  if (error.code() != Code::peer_lost) fail(error.code(), error.what(), error.rank());
  fail(Code::peer_lost, fmt::format("rank {} is lost: {}", rank, error.what()), rank);
}

/// The connection to another rank of this host, whose errors name that rank.
class LocalSocket {
 public:
  LocalSocket() = default;
  LocalSocket(FileDescriptor socket, int rank) : socket_(std::move(socket)), rank_(rank) {}

  static LocalSocket connected_to(int rank, const std::string& name, TimePoint until) try {
    return {connect_unix(name, until), rank};
  } catch (const Error& error) {
    fail_naming(rank, error);
  }

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }

  void send(std::initializer_list<int> descriptors, TimePoint until, const char* doing) const try {
    send_with_descriptors(fd(), as_bytes("."), descriptors, until, doing);
  } catch (const Error& error) {
    fail_naming(rank_, error);
  }

  std::vector<FileDescriptor> receive(size_t count, TimePoint until, const char* doing) const try {
    std::byte dot[1];
    auto descriptors = receive_with_descriptors(fd(), dot, until, doing);
    if (descriptors.size() != count) {
      fail(Code::internal, fmt::format("{}: received {} descriptors, expected {}", doing,
                                       descriptors.size(), count));
    }
    return descriptors;
  } catch (const Error& error) {
    fail_naming(rank_, error);
  }

  Member receive_member(TimePoint until, const char* doing) const {
    auto descriptors = receive(2, until, doing);
    return {std::move(descriptors[0]), std::move(descriptors[1])};
  }

  /// Returns false if nothing has come until then. Throws the launcher's reason if it abandons the
  /// job meanwhile.
  bool await(Abandonment* abandonment, TimePoint until) const {
    if (abandonment == nullptr) return wait_until_ready(fd(), POLLIN, until);
    EpollWaiter waiter;
    waiter.watch(fd(), kMembersTag);
    abandonment->watch(waiter, kLossTag);
    while (!wait_until_ready(fd(), POLLIN, TimePoint{})) {
      abandonment->check();
      if (!wait_until_ready(waiter.fd(), POLLIN, until)) return false;
    }
    return true;
  }

 private:
  FileDescriptor socket_{};
  int rank_ = kNoRank;
};

LocalPeers make_local_peers(std::unique_ptr<HostSegment> segment, std::vector<Member> members) {
  LocalPeers peers{std::move(segment), {}};
  for (size_t i = 0; i < members.size(); ++i) {
    peers.segment->set_doorbell(static_cast<int>(i), std::move(members[i].doorbell));
    peers.processes.push_back(std::move(members[i].process));
  }
  return peers;
}

SegmentLayout layout_of(const LocalPeersPlan& plan) {
  if (plan.ranks.size() > SegmentLayout::kMaxLocalRanks) {
    fail(Code::invalid_argument, fmt::format("{} ranks on one host; the limit is {}",
                                             plan.ranks.size(), SegmentLayout::kMaxLocalRanks));
  }
  const auto layout =
      SegmentLayout::of(static_cast<int>(plan.ranks.size()), plan.staging_bytes, kControlRingBytes);
  return plan.eager_buffers ? layout.with_eager_buffers() : layout;
}

/// The leader's connections to the other ranks of its host. If the leader fails, they stay open
/// until it has published the reason.
struct Followers {
  Gate gate;
  std::vector<LocalSocket> sockets{};  // [local rank]; empty for the leader itself
};

void await_members(const LocalPeersPlan& plan, Followers& others, const StartDeadline& deadline) {
  Gate& gate = others.gate;
  auto& sockets = others.sockets;
  sockets.resize(plan.ranks.size());
  const auto missing = [&] {
    std::vector<int> ranks;
    for (size_t i = 1; i < sockets.size(); ++i) {
      if (!sockets[i]) ranks.push_back(plan.ranks[i]);
    }
    return ranks;
  };
  EpollWaiter waiter;
  waiter.watch(gate.fd(), kMembersTag);
  if (plan.abandonment != nullptr) plan.abandonment->watch(waiter, kLossTag);
  while (!missing().empty()) {
    if (plan.abandonment != nullptr) plan.abandonment->check();
    // The deadline is checked each time, since strangers can keep the gate readable.
    if (deadline.left() == Duration::zero() ||
        !wait_until_ready(waiter.fd(), POLLIN, deadline.at)) {
      const auto ranks = missing();
      deadline.fail_at(
          ranks_text(ranks) + (ranks.size() == 1 ? " has " : " have ") +
              (plan.omission.empty() ? "joined the job but not connected to the leader of this host"
                                     : plan.omission),
          ranks.front());
    }
    for (Arrival& arrival : gate.step()) {
      const auto found = std::find(plan.ranks.begin() + 1, plan.ranks.end(), arrival.hello.rank);
      if (found != plan.ranks.end())
        sockets[found - plan.ranks.begin()] = {std::move(arrival.socket), *found};
    }
  }
}

LocalPeers lead(const LocalPeersPlan& plan, Followers& others, Store& store,
                const StartDeadline& deadline) {
  const size_t size = plan.ranks.size();
  make_room_for_descriptors(
      3 * size, fmt::format("sharing memory as the leader of the {} ranks of a host", size));
  auto segment = HostSegment::create(layout_of(plan), plan.generation);
  const std::string name = "horovod-" + random_digits();
  others.gate.listen_on(listen_unix(name));
  store.set(plan.name_key, as_bytes(name));

  await_members(plan, others, deadline);
  const auto& sockets = others.sockets;
  std::vector<Member> members(size);
  members[0] = {open_own_process(), duplicate(plan.doorbell)};
  for (size_t i = 1; i < size; ++i) {
    const int rank = plan.ranks[i];
    if (!sockets[i].await(plan.abandonment, deadline.at)) {
      deadline.fail_at(fmt::format("rank {} has not shared its process", rank), rank);
    }
    members[i] = sockets[i].receive_member(deadline.at, kReceivingProcess);
  }
  for (size_t i = 1; i < size; ++i) {
    sockets[i].send({segment->fd()}, deadline.at, kSendingMemory);
    for (const Member& member : members) {
      const auto descriptors = {member.process.get(), member.doorbell.get()};
      sockets[i].send(descriptors, deadline.at, kSendingMemory);
    }
  }
  return make_local_peers(std::move(segment), std::move(members));
}

std::string_view mark_of(Code code) {
  if (code == Code::peer_lost) return kLossMark;
  return code == Code::timed_out ? kLateMark : kFailureMark;
}

/// A boundary: if the Store is lost too, that is not the cause.
void publish_failure(const LocalPeersPlan& plan, Store& store, const Error& error) try {
  const std::string_view mark = mark_of(error.code());
  store.set(plan.name_key, as_bytes(fmt::format("{}{} {}", mark, error.rank(), error.what())));
} catch (const Error&) {
}

/// A boundary: a closed connection is not the cause; the launcher knows why the other rank is lost.
Error reason_of(const Error& error, const LocalPeersPlan& plan) try {
  const bool has_closed = error.code() == Code::peer_lost || error.code() == Code::unauthorized;
  if (has_closed && plan.abandonment != nullptr) plan.abandonment->await(kReasonTimeout);
  return error;
} catch (const Error& told) {
  return told;
}

/// A boundary: the reason is in the Store before the other ranks see their connections close.
LocalPeers lead_and_report(const LocalPeersPlan& plan, const JobKey& key, Store& store,
                           const StartDeadline& deadline) {
  Followers others{.gate = Gate(key, {kPurpose, plan.rank, plan.generation})};
  try {
    return lead(plan, others, store, deadline);
  } catch (const Error& error) {
    const Error reason = reason_of(error, plan);
    publish_failure(plan, store, reason);
    fail(reason.code(), reason.what(), reason.rank());
  }
}

/// Why a leader has failed.
struct Failure {
  Code code{};
  int rank = kNoRank;  // that the leader blames
  std::string why;
};

/// Nothing if `value` is the name of its socket.
std::optional<Failure> failure_in(ConstBytes value) {
  const std::string_view text = as_text(value);
  for (const auto& [mark, code] :
       {std::pair(kFailureMark, Code::internal), std::pair(kLossMark, Code::peer_lost),
        std::pair(kLateMark, Code::timed_out)}) {
    if (!text.starts_with(mark)) continue;
    Failure failure{.code = code, .why = {}};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + mark.size(), end, failure.rank);
    if (error == std::errc() && stop != end) failure.why.assign(stop + 1, end);
    return failure;
  }
  return std::nullopt;
}

[[noreturn]] void fail_with_leader(const Failure& failure, int leader) {
  const bool blames_another = failure.rank != kNoRank && failure.rank != leader;
  if (failure.code == Code::peer_lost || blames_another)  // it only passes the reason on
    fail(failure.code, failure.why, failure.rank);
  fail(failure.code,
       fmt::format("rank {}, the leader of this host, has failed: {}", leader, failure.why),
       failure.rank == kNoRank ? leader : failure.rank);
}

[[noreturn]] void fail_without_memory(const StartDeadline& deadline, int leader) {
  deadline.fail_at(
      fmt::format("rank {}, the leader of this host, has not shared its memory", leader), leader);
}

LocalPeers follow(const LocalPeersPlan& plan, const JobKey& key, Store& store,
                  const StartDeadline& deadline) {
  const int leader = plan.ranks.front();
  const auto name = store.wait(plan.name_key, deadline.left());
  if (!name && !plan.omission.empty())
    deadline.fail_at(fmt::format("rank {} has {}", leader, plan.omission), leader);
  if (!name) fail_without_memory(deadline, leader);
  if (const auto failure = failure_in(*name)) fail_with_leader(*failure, leader);
  if (plan.abandonment != nullptr) plan.abandonment->check();  // the launcher sees that it waits
  make_room_for_descriptors(
      2 * plan.ranks.size(),
      fmt::format("sharing memory with the {} ranks of a host", plan.ranks.size()));
  const auto socket = LocalSocket::connected_to(leader, std::string(as_text(*name)), deadline.at);
  Handshake handshake(Handshake::Role::dialer, key, {kPurpose, plan.rank, plan.generation});
  authenticate(socket.fd(), handshake, deadline.at);

  const FileDescriptor process = open_own_process();
  socket.send({process.get(), plan.doorbell}, deadline.at, kSendingProcess);
  // The time of the leader, which knows who is missing, may be over later. It closes the socket.
  const TimePoint until = deadline.at + kReasonTimeout;
  if (!socket.await(plan.abandonment, until)) fail_without_memory(deadline, leader);
  auto memory = socket.receive(1, until, kReceivingMemory);
  std::vector<Member> members(plan.ranks.size());
  for (Member& member : members) member = socket.receive_member(until, kReceivingMemory);
  const auto self = std::find(plan.ranks.begin(), plan.ranks.end(), plan.rank);
  auto segment = HostSegment::open(std::move(memory[0]), layout_of(plan), plan.generation,
                                   static_cast<int>(self - plan.ranks.begin()));
  return make_local_peers(std::move(segment), std::move(members));
}

/// What the leader has published; nothing if it has not failed or the Store is lost.
std::optional<Failure> failure_of_leader(const LocalPeersPlan& plan, Store& store) try {
  const auto value = store.wait(plan.name_key, kReasonTimeout);
  return value ? failure_in(*value) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

/// A boundary: the leader has published why it has closed the connection, or the launcher knows who
/// is lost.
LocalPeers follow_and_report(const LocalPeersPlan& plan, const JobKey& key, Store& store,
                             const StartDeadline& deadline) {
  try {
    return follow(plan, key, store, deadline);
  } catch (const Error& error) {
    if (const auto failure = failure_of_leader(plan, store))
      fail_with_leader(*failure, plan.ranks.front());
    const Error reason = reason_of(error, plan);
    fail(reason.code(), reason.what(), reason.rank());
  }
}

}  // namespace

LocalPeers connect_local_peers(const LocalPeersPlan& plan, const JobKey& key, Store& store,
                               const StartDeadline& deadline) {
  HVD_ASSERT(plan.ranks.size() > 1 && plan.doorbell >= 0);
  return plan.rank == plan.ranks.front() ? lead_and_report(plan, key, store, deadline)
                                         : follow_and_report(plan, key, store, deadline);
}

}  // namespace hvd

#include "core/group/bootstrap/host_circle.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/assert.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/group/bootstrap/card.h"
#include "core/transport/gate.h"
#include "core/transport/process_watch.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr const char* kPurpose = "segment";
constexpr size_t kControlRingBytes = 64 * KiB;
constexpr size_t kNameBytes = 16;

/// In the Store, in place of the name of the leader's socket: why it has given up.
constexpr std::string_view kFailureMark = "failed: ";
constexpr std::chrono::seconds kPatienceForReason{1};

constexpr const char* kTaking = "taking this host's shared memory from its leader";

std::string giving_to(int rank) {
  return fmt::format("giving this host's shared memory to rank {}", rank);
}

/// What travels for one rank: its process and its doorbell.
struct Member {
  FileDescriptor process;
  FileDescriptor doorbell;
};

std::string random_name() {
  std::array<std::byte, kNameBytes> bytes;
  fill_random(bytes);
  std::string name = "horovod-";
  for (const std::byte byte : bytes) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return name;
}

void give(const FileDescriptor& socket, std::initializer_list<int> descriptors,
          const StartDeadline& deadline, const std::string& doing) {
  send_with_descriptors(socket.get(), as_bytes("."), descriptors, deadline.at, doing);
}

std::vector<FileDescriptor> take(const FileDescriptor& socket, size_t count,
                                 const StartDeadline& deadline) {
  std::byte dot[1];
  auto descriptors = receive_with_descriptors(socket.get(), dot, deadline.at, kTaking);
  if (descriptors.size() != count) {
    fail(Code::internal,
         fmt::format("{}: {} descriptors came, expected {}", kTaking, descriptors.size(), count));
  }
  return descriptors;
}

Member take_member(const FileDescriptor& socket, const StartDeadline& deadline) {
  auto descriptors = take(socket, 2, deadline);
  return {std::move(descriptors[0]), std::move(descriptors[1])};
}

HostCircle circle_of(std::unique_ptr<HostSegment> segment, std::vector<Member> members) {
  HostCircle circle{std::move(segment), {}};
  for (size_t i = 0; i < members.size(); ++i) {
    circle.segment->set_doorbell(static_cast<int>(i), std::move(members[i].doorbell));
    circle.processes.push_back(std::move(members[i].process));
  }
  return circle;
}

SegmentLayout layout_of(const HostPlan& plan) {
  if (plan.ranks.size() > SegmentLayout::kMaxLocalRanks) {
    fail(Code::invalid_argument, fmt::format("{} ranks on one host; the limit is {}",
                                             plan.ranks.size(), SegmentLayout::kMaxLocalRanks));
  }
  const auto layout =
      SegmentLayout::of(static_cast<int>(plan.ranks.size()), plan.staging_bytes, kControlRingBytes);
  return plan.eager_slots ? layout.with_eager_slots() : layout;
}

/// The sockets of the others, [local rank]; of the leader itself, none.
std::vector<FileDescriptor> await_members(const HostPlan& plan, Gate& gate,
                                          const StartDeadline& deadline) {
  std::vector<FileDescriptor> sockets(plan.ranks.size());
  const auto missing = [&] {
    std::vector<int> ranks;
    for (size_t i = 1; i < sockets.size(); ++i) {
      if (!sockets[i]) ranks.push_back(plan.ranks[i]);
    }
    return ranks;
  };
  while (!missing().empty()) {
    // The time is looked at in each turn: strangers can keep the gate's descriptor readable.
    if (deadline.left() == Duration::zero() || !wait_until_ready(gate.fd(), POLLIN, deadline.at)) {
      const auto ranks = missing();
      deadline.fail_at(ranks_text(ranks) + (ranks.size() == 1 ? " has" : " have") +
                           " come but not connected to the leader of this host",
                       ranks.front());
    }
    for (Arrival& arrival : gate.step()) {
      const auto found = std::find(plan.ranks.begin() + 1, plan.ranks.end(), arrival.hello.rank);
      if (found != plan.ranks.end())
        sockets[found - plan.ranks.begin()] = std::move(arrival.socket);
    }
  }
  return sockets;
}

/// The leader's connections to the other ranks of its host. Where it fails, they stay open until
/// the others have been told.
struct Followers {
  Gate gate;
  std::vector<FileDescriptor> sockets{};
};

HostCircle lead(const HostPlan& plan, Followers& others, Store& store,
                const StartDeadline& deadline) {
  const size_t size = plan.ranks.size();
  make_room_for_descriptors(
      3 * size, fmt::format("leading the {} ranks of a host, which share memory,", size));
  auto segment = HostSegment::create(layout_of(plan), plan.generation);
  const std::string name = random_name();
  others.gate.listen_on(listen_unix(name));
  store.set(plan.name_key, as_bytes(name));

  others.sockets = await_members(plan, others.gate, deadline);
  const auto& sockets = others.sockets;
  std::vector<Member> members(size);
  members[0] = {open_own_process(), duplicate(plan.doorbell)};
  for (size_t i = 1; i < size; ++i) members[i] = take_member(sockets[i], deadline);
  for (size_t i = 1; i < size; ++i) {
    const std::string giving = giving_to(plan.ranks[i]);
    give(sockets[i], {segment->fd()}, deadline, giving);
    for (const Member& member : members) {
      give(sockets[i], {member.process.get(), member.doorbell.get()}, deadline, giving);
    }
  }
  return circle_of(std::move(segment), std::move(members));
}

/// A boundary: a Store that is lost, too, is not the cause.
void say_why(const HostPlan& plan, Store& store, const Error& error) try {
  store.set(plan.name_key, as_bytes(std::string(kFailureMark) + error.what()));
} catch (const Error&) {
}

/// A boundary: the others learn by way of the Store why their leader gives up, before they see its
/// connections end.
HostCircle lead_or_say_why(const HostPlan& plan, const JobKey& key, Store& store,
                           const StartDeadline& deadline) {
  Followers others{.gate = Gate(key, {kPurpose, plan.rank, plan.generation})};
  try {
    return lead(plan, others, store, deadline);
  } catch (const Error& error) {
    say_why(plan, store, error);
    fail(error.code(), error.what(), error.rank());
  }
}

/// What stands in the Store in place of a name; nothing when it is one.
std::optional<std::string_view> failure_in(ConstBytes value) {
  const std::string_view text = as_text(value);
  if (!text.starts_with(kFailureMark)) return std::nullopt;
  return text.substr(kFailureMark.size());
}

[[noreturn]] void fail_with_leader(std::string_view why, int leader) {
  fail(Code::internal,
       fmt::format("rank {}, the leader of this host, has given up: {}", leader, why), leader);
}

HostCircle follow(const HostPlan& plan, const JobKey& key, Store& store,
                  const StartDeadline& deadline) {
  const int leader = plan.ranks.front();
  const auto name = store.wait(plan.name_key, deadline.left());
  if (!name) {
    deadline.fail_at(
        fmt::format("rank {}, the leader of this host, has not opened its memory", leader), leader);
  }
  if (const auto why = failure_in(*name)) fail_with_leader(*why, leader);
  make_room_for_descriptors(
      2 * plan.ranks.size(),
      fmt::format("being one of {} ranks of a host, which share memory,", plan.ranks.size()));
  const FileDescriptor socket = connect_unix(std::string(as_text(*name)), deadline.at);
  Handshake handshake(Handshake::Role::dialer, key, {kPurpose, plan.rank, plan.generation});
  authenticate(socket.get(), handshake, deadline.at);

  const FileDescriptor process = open_own_process();
  give(socket, {process.get(), plan.doorbell}, deadline, giving_to(leader));
  auto memory = take(socket, 1, deadline);
  std::vector<Member> members(plan.ranks.size());
  for (Member& member : members) member = take_member(socket, deadline);
  const auto self = std::find(plan.ranks.begin(), plan.ranks.end(), plan.rank);
  auto segment = HostSegment::open(std::move(memory[0]), layout_of(plan), plan.generation,
                                   static_cast<int>(self - plan.ranks.begin()));
  return circle_of(std::move(segment), std::move(members));
}

/// What the leader has said in the Store; nothing also when that is lost.
std::optional<std::string> why_of_leader(const HostPlan& plan, Store& store) try {
  const auto said = store.wait(plan.name_key, kPatienceForReason);
  const auto why = said ? failure_in(*said) : std::nullopt;
  return why ? std::optional<std::string>(*why) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

/// A boundary: that the leader's connection ends is not the cause; the leader has said what is.
HostCircle follow_or_ask_why(const HostPlan& plan, const JobKey& key, Store& store,
                             const StartDeadline& deadline) {
  try {
    return follow(plan, key, store, deadline);
  } catch (const Error& error) {
    if (const auto why = why_of_leader(plan, store)) fail_with_leader(*why, plan.ranks.front());
    fail(error.code(), error.what(), error.rank());
  }
}

}  // namespace

HostCircle join_host(const HostPlan& plan, const JobKey& key, Store& store,
                     const StartDeadline& deadline) {
  HVD_ASSERT(plan.ranks.size() > 1 && plan.doorbell >= 0);
  return plan.rank == plan.ranks.front() ? lead_or_say_why(plan, key, store, deadline)
                                         : follow_or_ask_why(plan, key, store, deadline);
}

}  // namespace hvd

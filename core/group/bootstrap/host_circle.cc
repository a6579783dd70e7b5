#include "core/group/bootstrap/host_circle.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/assert.h"
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

const std::string kTaking = "taking this host's shared memory from its leader";
const std::string kGiving = "giving this host's shared memory to a rank";

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
          const StartDeadline& deadline) {
  send_with_descriptors(socket.get(), as_bytes("."), descriptors, deadline.at, kGiving);
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
    if (!wait_until_ready(gate.fd(), POLLIN, deadline.at)) {
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

HostCircle lead(const HostPlan& plan, const JobKey& key, Store& store,
                const StartDeadline& deadline) {
  auto segment = HostSegment::create(layout_of(plan), plan.generation);
  const std::string name = random_name();
  Gate gate(key, {kPurpose, plan.rank, plan.generation});
  gate.listen_on(listen_unix(name));
  store.set(plan.name_key, as_bytes(name));

  const auto sockets = await_members(plan, gate, deadline);
  std::vector<Member> members(sockets.size());
  members[0] = {open_own_process(), duplicate(plan.doorbell)};
  for (size_t i = 1; i < sockets.size(); ++i) members[i] = take_member(sockets[i], deadline);
  for (size_t i = 1; i < sockets.size(); ++i) {
    give(sockets[i], {segment->fd()}, deadline);
    for (const Member& member : members) {
      give(sockets[i], {member.process.get(), member.doorbell.get()}, deadline);
    }
  }
  return circle_of(std::move(segment), std::move(members));
}

HostCircle follow(const HostPlan& plan, const JobKey& key, Store& store,
                  const StartDeadline& deadline) {
  const int leader = plan.ranks.front();
  const auto name = store.wait(plan.name_key, deadline.left());
  if (!name) {
    deadline.fail_at(
        fmt::format("rank {}, the leader of this host, has not opened its memory", leader), leader);
  }
  const FileDescriptor socket = connect_unix(std::string(as_text(*name)), deadline.at);
  Handshake handshake(Handshake::Role::dialer, key, {kPurpose, plan.rank, plan.generation});
  authenticate(socket.get(), handshake, deadline.at);

  const FileDescriptor process = open_own_process();
  give(socket, {process.get(), plan.doorbell}, deadline);
  auto memory = take(socket, 1, deadline);
  std::vector<Member> members(plan.ranks.size());
  for (Member& member : members) member = take_member(socket, deadline);
  const auto self = std::find(plan.ranks.begin(), plan.ranks.end(), plan.rank);
  auto segment = HostSegment::open(std::move(memory[0]), layout_of(plan), plan.generation,
                                   static_cast<int>(self - plan.ranks.begin()));
  return circle_of(std::move(segment), std::move(members));
}

}  // namespace

HostCircle join_host(const HostPlan& plan, const JobKey& key, Store& store,
                     const StartDeadline& deadline) {
  HVD_ASSERT(plan.ranks.size() > 1 && plan.doorbell >= 0);
  return plan.rank == plan.ranks.front() ? lead(plan, key, store, deadline)
                                         : follow(plan, key, store, deadline);
}

}  // namespace hvd

#include "core/group/link_group.h"

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/group/group_contract.h"
#include "core/transport/mem_link.h"

namespace hvd {
namespace {

constexpr uint32_t kGeneration = 3;

/// One link per pair of ranks.
class LinkWorld final : public GroupWorld {
 public:
  LinkWorld(int ranks, size_t capacity, uint64_t split_seed, bool share_a_core = false)
      : share_a_core_(share_a_core), meshes_(ranks) {
    for (int first = 0; first < ranks; ++first) {
      for (int second = first + 1; second < ranks; ++second) {
        auto [a, b] = MemLink::make_pair({.capacity = capacity,
                                          .split_seed = split_seed,
                                          .first_rank = first,
                                          .second_rank = second});
        meshes_[first].add(std::make_unique<Channel>(std::move(a), second, kGeneration));
        meshes_[second].add(std::make_unique<Channel>(std::move(b), first, kGeneration));
      }
    }
  }

  Mesh& mesh(int rank) { return meshes_[rank]; }

  std::unique_ptr<Group> group(int rank, std::vector<int> members) override {
    const MemberPlaces places{.on_one_machine = share_a_core_,
                              .ranks_a_core = share_a_core_ ? static_cast<int>(members.size()) : 1};
    return std::make_unique<LinkGroup>(meshes_[rank], std::move(members), rank, places);
  }
  void rest(int, const std::function<bool()>&) override { std::this_thread::yield(); }
  void finish(int rank) override { meshes_[rank].pump_unsent(); }

 private:
  bool share_a_core_;
  std::vector<Mesh> meshes_;
};

INSTANTIATE_TEST_SUITE_P(
    Links, GroupContract,
    testing::Values(
        GroupKind{"links",
                  [](int ranks) { return std::make_unique<LinkWorld>(ranks, 64 * KiB, 0); }},
        GroupKind{"links_split",
                  [](int ranks) { return std::make_unique<LinkWorld>(ranks, 64 * KiB, 11); }},
        GroupKind{
            "links_crowd",
            [](int ranks) { return std::make_unique<LinkWorld>(ranks, 64 * KiB, 11, true); }}),
    name_of_group_kind);

void publish_to(Group& group, Ticket ticket, int peer, size_t bytes) {
  ASSERT_TRUE(group.reserve(ticket, bytes));
  group.publish(ticket, std::vector{Parcel{peer, 0, bytes}});
  group.release(ticket);
}

TEST(LinkGroup, WhatItHasLentOutlivesIt) {
  LinkWorld world(2, 64, 0);  // a link that accepts very few bytes at once
  const auto second = world.group(1, {0, 1});
  constexpr size_t kBytes = 100'000;
  {
    const auto first = world.group(0, {0, 1});
    const auto room = first->reserve({1, 0}, kBytes);
    ASSERT_TRUE(room);
    std::ranges::fill(*room, std::byte{42});
    first->publish({1, 0}, std::vector{Parcel{1, 0, kBytes}});
    first->release({1, 0});
    ASSERT_GT(world.mesh(0).unsent_bytes(1), 0u);
  }
  std::optional<ConstBytes> seen;
  while (!(seen = second->view({1, 0}, {0, 0, kBytes}))) {
    world.mesh(0).pump_unsent();
    second->pump();
  }
  EXPECT_TRUE(std::ranges::all_of(*seen, [](std::byte byte) { return byte == std::byte{42}; }));
}

TEST(LinkGroup, RoomIsRefusedWhileMuchIsUnsent) {
  LinkWorld world(2, 4096, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  uint32_t unit = 0;
  while (world.mesh(0).unsent_bytes(1) <= LinkGroup::kUnsentLimitBytes) {
    publish_to(*first, {1, unit++}, 1, Mesh::kUnitBytes);
  }
  EXPECT_FALSE(first->reserve({1, unit}, 1));
  for (uint32_t done = 0; done < unit; ++done) {
    while (!second->view({1, done}, {0, 0, Mesh::kUnitBytes})) {
      first->pump();
      second->pump();
    }
    second->release({1, done});
  }
  EXPECT_TRUE(first->reserve({1, unit}, 1));
}

TEST(LinkGroup, WhatOneGroupOwesLeavesWhileAnotherGroupWaits) {
  LinkWorld world(3, 4096, 0);
  const auto with_one = world.group(0, {0, 1});
  const auto with_two = world.group(0, {0, 2});
  const auto one = world.group(1, {0, 1});
  publish_to(*with_one, {1, 0}, 1, 100 * KiB);
  EXPECT_EQ(world.mesh(0).unsent().size(), 1u);
  while (!one->view({1, 0}, {0, 0, 100 * KiB})) {
    ASSERT_TRUE(with_two->pump() | one->pump());
  }
  with_two->pump();
  EXPECT_TRUE(world.mesh(0).unsent().empty());
}

TEST(LinkGroup, APartOfAParcelCanBeViewed) {
  LinkWorld world(2, 4096, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  const Ticket ticket{1, 0};
  const auto room = first->reserve(ticket, 30);
  for (size_t i = 0; i < room->size(); ++i) (*room)[i] = static_cast<std::byte>(i);
  first->publish(ticket, std::vector{Parcel{1, 0, 10}, Parcel{1, 20, 10}});
  second->pump();
  const auto view = second->view(ticket, {0, 22, 3});
  ASSERT_TRUE(view);
  EXPECT_EQ((*view)[0], std::byte{22});
  EXPECT_FALSE(second->view(ticket, {0, 8, 5}));  // beyond the sent bytes
  EXPECT_FALSE(second->view(ticket, {0, 12, 3}));
}

ByteVector pattern(size_t bytes, int seed) {
  ByteVector out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return out;
}

/// Sends `pieces` as one zero-copy parcel to `peer`.
void lend_to(Group& group, Ticket ticket, int peer, std::span<const ConstBytes> pieces) {
  size_t bytes = 0;
  for (const ConstBytes piece : pieces) bytes += piece.size();
  ASSERT_TRUE(group.reserve(ticket, 0));
  group.publish_loans(ticket, std::vector{Loan{{peer, 0, bytes}, pieces}});
}

TEST(LinkGroup, WhatIsLentLandsWhereItIsWanted) {
  for (const uint64_t seed : {0, 11, 12}) {
    LinkWorld world(2, 64 * KiB, seed);
    const auto first = world.group(0, {0, 1});
    const auto second = world.group(1, {0, 1});
    uint32_t unit = 0;
    for (const size_t bytes : {size_t{8}, 4 * KiB, 4 * KiB - 1, 32 * KiB, 40 * KiB, 6 * KiB,
                               1 * MiB, size_t{4}, 100 * KiB}) {
      const Ticket ticket{1, unit++};
      const ByteVector sent = pattern(bytes, static_cast<int>(unit));
      ByteVector target(bytes);
      const ConstBytes all(sent);
      const std::vector<ConstBytes> pieces{all.first(bytes / 2), all.subspan(bytes / 2)};
      const bool own_memory = unit % 2 == 0;
      second->land(ticket, {0, 0, bytes}, own_memory ? MutableBytes{} : MutableBytes(target));
      lend_to(*first, ticket, 1, pieces);
      std::optional<ConstBytes> view;
      while (!(view = second->view(ticket, {0, 0, bytes}))) {
        ASSERT_TRUE(first->pump() | second->pump());
      }
      EXPECT_TRUE(std::ranges::equal(*view, sent));
      EXPECT_TRUE(first->sent(ticket));
      const bool lands = bytes >= LinkGroup::kLeastLandingBytes && !own_memory;
      EXPECT_EQ(view->data() == target.data(), lands);
      first->release(ticket);
      second->release(ticket);
    }
  }
}

/// Sends two messages of `bytes`; the first has begun to arrive when its receive is posted. Returns
/// the received and the sent data.
std::pair<ByteVector, ByteVector> land_late(size_t bytes) {
  const ByteVector sent = pattern(bytes, 1);
  const ConstBytes piece(sent);
  ByteVector late(sent.size()), timely(sent.size());
  LinkWorld world(2, 64 * KiB, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  lend_to(*first, {1, 0}, 1, {&piece, 1});
  first->pump();
  second->pump();
  second->land({1, 0}, {0, 0, sent.size()}, late);
  second->land({1, 1}, {0, 0, sent.size()}, timely);
  lend_to(*first, {1, 1}, 1, {&piece, 1});
  while (!second->view({1, 1}, {0, 0, sent.size()})) EXPECT_TRUE(first->pump() | second->pump());
  EXPECT_TRUE(std::ranges::equal(*second->view({1, 0}, {0, 0, sent.size()}), sent));
  EXPECT_EQ(timely, sent);
  return {late, sent};
}

TEST(LinkGroup, WhatHasArrivedAlreadyLandsNowhere) {
  EXPECT_EQ(land_late(20 * KiB).first, ByteVector(20 * KiB));
}

TEST(LinkGroup, WhatHasBegunToArriveStillLands) {
  for (const size_t bytes : {100 * KiB, 200 * KiB, 1 * MiB}) {
    const auto [landed, sent] = land_late(bytes);
    EXPECT_EQ(landed, sent) << bytes;
  }
}

TEST(LinkGroup, LoansThatAreReturnedAreCopied) {
  LinkWorld world(2, 4096, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  const ByteVector content = pattern(200 * KiB, 1);
  ByteVector sent = content, target(content.size()), behind(content.size());
  const ConstBytes piece(sent);
  lend_to(*first, {1, 0}, 1, {&piece, 1});
  lend_to(*first, {1, 1}, 1, {&piece, 1});
  EXPECT_FALSE(first->sent({1, 0}));
  second->land({1, 0}, {0, 0, content.size()}, target);
  second->land({1, 1}, {0, 0, content.size()}, behind);
  for (int i = 0; i < 10; ++i) first->pump(), second->pump();  // the first is in transit
  first->return_loans();
  second->return_loans();
  std::ranges::fill(sent, std::byte{0});
  const ByteVector target_then = target;
  for (const Ticket ticket : {Ticket{1, 0}, Ticket{1, 1}}) {
    while (!second->view(ticket, {0, 0, content.size()}))
      ASSERT_TRUE(first->pump() | second->pump());
    EXPECT_TRUE(std::ranges::equal(*second->view(ticket, {0, 0, content.size()}), content));
  }
  EXPECT_EQ(target, target_then);
  EXPECT_EQ(behind, ByteVector(content.size()));
}

TEST(Mesh, WhatAPeerSendsFarAheadStaysInItsLink) {
  LinkWorld world(2, 64 * KiB, 0);
  const auto first = world.group(0, {0, 1});
  uint32_t unit = 0;
  // The second rank reads continuously and releases nothing.
  for (int idle = 0; idle < 3;) {
    const bool room = first->reserve({1, unit}, Mesh::kUnitBytes).has_value();
    if (room) publish_to(*first, {1, unit++}, 1, Mesh::kUnitBytes);
    const bool moved = world.mesh(0).pump(1) | world.mesh(1).pump(0);
    idle = room || moved ? 0 : idle + 1;
    ASSERT_LT(unit, 100u);
  }
  const size_t held = Mesh::kParkedLimitBytes + kUnreadLimitBytes + LinkGroup::kUnsentLimitBytes;
  EXPECT_LE(unit * Mesh::kUnitBytes, held + 4 * Mesh::kUnitBytes);
}

/// A parcel that arrives before its receive is posted is not received in place.
TEST(Mesh, APeerThatIsOwedNothingMoreIsNotRead) {
  LinkWorld world(2, MiB, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  publish_to(*first, {1, 0}, 1, 100 * KiB);
  ASSERT_TRUE(world.mesh(0).pump(1));
  ASSERT_EQ(world.mesh(0).unsent_bytes(1), 0u);
  publish_to(*second, {1, 0}, 0, 10);
  EXPECT_FALSE(world.mesh(0).pump_unsent());
  EXPECT_TRUE(world.mesh(0).unsent().empty());
  EXPECT_TRUE(world.mesh(0).pump(1));
}

TEST(Mesh, WhatNobodyWantedIsDropped) {
  LinkWorld world(2, 64 * KiB, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  second->release({1, 0});
  publish_to(*first, {1, 0}, 1, 10);
  publish_to(*first, {1, 1}, 1, 10);
  second->pump();
  EXPECT_FALSE(second->view({1, 0}, {0, 0, 10}));
  EXPECT_TRUE(second->view({1, 1}, {0, 0, 10}));
}

/// Returns the error of a mesh whose peer sends `payload`.
Error refusal(FrameKind kind, ByteVector payload) {
  auto [a, b] = MemLink::make_pair({.first_rank = 0, .second_rank = 1});
  Channel stranger(std::move(a), 1, kGeneration);
  Mesh mesh;
  mesh.add(std::make_unique<Channel>(std::move(b), 0, kGeneration));
  stranger.send(kind, std::move(payload));
  try {
    mesh.pump(0);
  } catch (const Error& error) {
    return error;
  }
  return {Code::ok, "it was taken"};
}

ByteVector unit_frame(uint64_t offset, size_t bytes) {
  Writer frame;
  frame.put(uint64_t{1});
  frame.put(offset);
  ByteVector made = frame.take();
  made.resize(kUnitHeaderBytes + bytes);
  return made;
}

TEST(Mesh, FramesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(refusal(FrameKind::data, unit_frame(0, 8)).code(), Code::ok);
  for (const Error& error : {refusal(FrameKind::control, unit_frame(0, 8)),
                             refusal(FrameKind::data, ByteVector(kUnitHeaderBytes - 1)),
                             refusal(FrameKind::data, unit_frame(Mesh::kUnitBytes, 1)),
                             refusal(FrameKind::data, unit_frame(~uint64_t{0}, 1))}) {
    EXPECT_EQ(error.code(), Code::internal);
    EXPECT_EQ(error.rank(), 0);
  }
}

TEST(Mesh, ALostPeerIsNamed) {
  auto [a, b] = MemLink::make_pair({.first_rank = 0, .second_rank = 7});
  Mesh mesh;
  mesh.add(std::make_unique<Channel>(std::move(a), 7, kGeneration));
  b.reset();
  try {
    mesh.pump(7);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 7);
  }
}

TEST(Mesh, APeerThatGoesSaysWhomItHasLost) {
  for (const auto& [lost, text] :
       {std::pair{2, "rank 2 is lost, as reported by rank 1"},
        std::pair{1, "rank 1 has failed; its own error gives the reason"}}) {
    LinkWorld world(3, 4096, 0);
    world.mesh(1).give_up(lost);
    try {
      world.mesh(0).pump();
      FAIL() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.rank(), lost);
      EXPECT_STREQ(error.what(), text);
    }
    EXPECT_FALSE(world.mesh(0).pump());  // reported once
  }
}

TEST(Mesh, PartsWhenAllIsSentAndEveryPeerHasSaidGoodbye) {
  LinkWorld world(2, 4096, 0);
  const auto first = world.group(0, {0, 1});
  const auto second = world.group(1, {0, 1});
  constexpr size_t kBytes = 20 * KiB;
  publish_to(*first, {1, 0}, 1, kBytes);
  world.mesh(0).say_goodbye();
  world.mesh(1).say_goodbye();
  world.mesh(0).pump();
  EXPECT_FALSE(world.mesh(0).parted(false));  // some bytes are unsent
  EXPECT_FALSE(world.mesh(0).parted(true));
  EXPECT_TRUE(world.mesh(1).parted(true));
  EXPECT_FALSE(world.mesh(1).parted(false));  // the goodbye is queued after the unsent bytes
  while (world.mesh(1).pump() | world.mesh(0).pump()) continue;
  EXPECT_TRUE(world.mesh(0).parted(false));
  EXPECT_TRUE(world.mesh(1).parted(false));
  EXPECT_TRUE(second->view({1, 0}, {0, 0, kBytes}));  // data before the goodbye is still available
}

TEST(Mesh, APeerThatIsForgottenIsNeitherReadNorWaitedFor) {
  LinkWorld world(3, 4096, 0);
  const auto first = world.group(0, {0, 1, 2});
  publish_to(*first, {1, 0}, 1, 20 * KiB);
  world.mesh(0).forget(1);
  world.mesh(0).forget(9);  // rank 9 does not exist
  std::vector<int> visited;
  world.mesh(0).for_each_channel([&](Channel& channel) { visited.push_back(channel.peer()); });
  EXPECT_EQ(visited, std::vector{2});
  EXPECT_FALSE(world.mesh(0).pump(1));
  world.mesh(0).say_goodbye();
  world.mesh(2).say_goodbye();
  while (world.mesh(0).pump() | world.mesh(2).pump()) continue;
  EXPECT_TRUE(world.mesh(0).parted(false));
  EXPECT_EQ(world.mesh(0).peers(), (std::vector{1, 2}));
}

}  // namespace
}  // namespace hvd

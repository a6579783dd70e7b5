#include "core/transport/shm_link.h"

#include "core/base/aligned_buffer.h"
#include "core/transport/link_contract.h"

namespace hvd {
namespace {

/// The shared memory of two ranks, and the number of wake-ups of each.
struct Shared {
  static constexpr size_t kCapacity = 4096;
  Shared() {
    make_ring(there());
    make_ring(back());
  }
  MutableBytes there() { return {first.data(), first.size()}; }
  MutableBytes back() { return {second.data(), second.size()}; }

  AlignedBuffer first{ring_memory_bytes(kCapacity)};
  AlignedBuffer second{ring_memory_bytes(kCapacity)};
  std::atomic<int> woken[2] = {0, 0};
};

LinkPair make(const std::shared_ptr<Shared>& shared) {
  const auto wake = [shared](int rank) { return [shared, rank] { ++shared->woken[rank]; }; };
  return {std::make_unique<ShmLink>(RingWriter(shared->there()), RingReader(shared->back()), 1,
                                    wake(1)),
          std::make_unique<ShmLink>(RingWriter(shared->back()), RingReader(shared->there()), 0,
                                    wake(0)),
          shared};
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, LinkContract,
                         testing::Values(LinkKind{"shm",
                                                  [] { return make(std::make_shared<Shared>()); }}),
                         name_of_kind);

TEST(ShmLink, WakesThePeerThatHasSomethingToReadOrRoomAgain) {
  const auto shared = std::make_shared<Shared>();
  auto pair = make(shared);
  ByteVector block(Shared::kCapacity);
  ByteVector room(10);
  EXPECT_EQ(pair.first->send_some(block), block.size());
  EXPECT_EQ(shared->woken[1], 1);
  EXPECT_EQ(pair.second->receive_some(room), 10u);
  EXPECT_EQ(shared->woken[0], 0);  // the sender was not blocked and needs no wake-up
  EXPECT_EQ(pair.first->send_some(block), 10u);
  EXPECT_EQ(pair.first->send_some(block), 0u);
  EXPECT_EQ(shared->woken[1], 2);
  EXPECT_EQ(pair.second->receive_some(room), 10u);
  EXPECT_EQ(shared->woken[0], 1);
  pair.first.reset();
  EXPECT_EQ(shared->woken[1], 3);
}

}  // namespace
}  // namespace hvd

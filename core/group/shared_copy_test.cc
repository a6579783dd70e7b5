#include "core/group/shared_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hvd {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kPiece = 64 * KiB;
constexpr nanoseconds kFast{5'000};
constexpr nanoseconds kSlow{30'000};

void tell(StoreChoice& choice, size_t bytes, nanoseconds time_of_piece) {
  for (size_t told = 0; told < bytes; told += kPiece) choice.took(kPiece, time_of_piece);
}

StoreChoice one_that_streams() {
  StoreChoice choice;
  for (size_t told = 0; told < 2 * StoreChoice::kSettlingBytes && !choice.streams(); told += kPiece)
    choice.took(kPiece, kSlow);
  return choice;
}

TEST(StoreChoice, StaysWithPlainStoresWhileTheyAreFast) {
  StoreChoice choice;
  tell(choice, 4 * StoreChoice::kStreamedBytes, kFast);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, GoesPastTheCachesWhenStoresAreSlow) { EXPECT_TRUE(one_that_streams().streams()); }

TEST(StoreChoice, ForgivesASlowStart) {
  StoreChoice choice;
  tell(choice, StoreChoice::kSettlingBytes - kPiece, kSlow);
  tell(choice, StoreChoice::kSettlingBytes, kFast);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, ForgivesAnInterruptNowAndThen) {
  StoreChoice choice;
  tell(choice, StoreChoice::kSettlingBytes, kFast);
  for (int i = 0; i < 1000; ++i)
    choice.took(kPiece, i % StoreChoice::kSuspicions == 0 ? kFast : kSlow);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, TriesPlainStoresAgainAndStaysWithThemIfTheyAreFastNow) {
  StoreChoice choice = one_that_streams();
  tell(choice, StoreChoice::kStreamedBytes - kPiece, kFast);
  EXPECT_TRUE(choice.streams());
  tell(choice, kPiece, kFast);
  EXPECT_FALSE(choice.streams());
  tell(choice, StoreChoice::kStreamedBytes, kFast);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, GoesBackIfPlainStoresAreSlowStill) {
  StoreChoice choice = one_that_streams();
  tell(choice, StoreChoice::kStreamedBytes, kFast);
  tell(choice, StoreChoice::kSettlingBytes + StoreChoice::kSuspicions * kPiece, kSlow);
  EXPECT_TRUE(choice.streams());
}

TEST(SharedCopy, CopiesAllBytesByEitherStores) {
  constexpr size_t kMost = 70'000, kOffset = 3, kGuard = 100;
  std::vector<std::byte> from(kMost + kOffset);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 % 251);
  for (const bool streams : {false, true}) {
    SharedCopy copy(streams ? one_that_streams() : StoreChoice());
    for (const size_t bytes : {size_t{0}, size_t{1}, 2 * KiB - 1, 2 * KiB, size_t{5000}, kMost}) {
      std::vector<std::byte> to(kMost + kGuard);
      copy.copy(to.data() + 1, from.data() + kOffset, bytes);
      EXPECT_TRUE(std::equal(to.data() + 1, to.data() + 1 + bytes, from.data() + kOffset)) << bytes;
      EXPECT_TRUE(std::all_of(to.data() + 1 + bytes, to.data() + to.size(), [](std::byte value) {
        return value == std::byte{};
      })) << bytes;
    }
  }
}

}  // namespace
}  // namespace hvd

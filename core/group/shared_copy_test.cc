#include "core/group/shared_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace hvd {
namespace {

using namespace std::chrono_literals;

constexpr size_t kPiece = 64 * KiB;
constexpr Duration kFast = 5us, kSlow = 30us, kSlower = 40us;

void tell(StoreChoice& choice, size_t bytes, Duration time_of_piece) {
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
  tell(choice, 4 * StoreChoice::kTrialBytes, kFast);
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
  tell(choice, StoreChoice::kTrialBytes - kPiece, kFast);
  EXPECT_TRUE(choice.streams());
  tell(choice, kPiece, kFast);
  EXPECT_FALSE(choice.streams());
  tell(choice, StoreChoice::kTrialBytes, kFast);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, GoesBackIfPlainStoresAreSlowStill) {
  StoreChoice choice = one_that_streams();
  tell(choice, StoreChoice::kTrialBytes, kFast);
  ASSERT_FALSE(choice.streams());
  tell(choice, StoreChoice::kSettlingBytes + StoreChoice::kSuspicions * kPiece, kSlow);
  EXPECT_TRUE(choice.streams());
}

TEST(StoreChoice, DoesNotGoPastTheCachesWhereThatIsSlowerStill) {
  StoreChoice choice = one_that_streams();
  tell(choice, StoreChoice::kSuspicions * kPiece, kSlower);
  EXPECT_FALSE(choice.streams());
  tell(choice, StoreChoice::kTrialBytes - kPiece, kSlow);
  EXPECT_FALSE(choice.streams());
}

TEST(StoreChoice, StaysPastTheCachesWhereThatIsSlowTooButFaster) {
  StoreChoice choice;
  for (int i = 0; i < 100 && !choice.streams(); ++i) choice.took(kPiece, kSlower);
  tell(choice, StoreChoice::kTrialBytes - kPiece, kSlow);
  EXPECT_TRUE(choice.streams());
}

TEST(StoreChoice, DoesNotEndATrialAfterAFewHugeCopies) {
  StoreChoice choice = one_that_streams();
  for (int i = 0; i < 100; ++i) choice.took(128 * MiB, 1ms);
  EXPECT_TRUE(choice.streams());
}

/// A clock that advances by a fixed time per reading.
class SlowClock final : public Clock {
 public:
  explicit SlowClock(Duration look) : look_(look) {}
  TimePoint now() const override { return now_ += look_; }

 private:
  Duration look_;
  mutable TimePoint now_{};
};

/// Runs enough copies for a decision.
bool would_stream(Duration time_of_copy) {
  const SlowClock clock(time_of_copy);
  SharedCopy copy(clock);
  std::vector<std::byte> from(kPiece), to(kPiece);
  for (int i = 0; i < 1000; ++i) copy.copy(to.data(), from.data(), kPiece);
  return copy.streams();
}

TEST(SharedCopy, ChoosesByTheTimeThatItsCopiesTake) {
  EXPECT_FALSE(would_stream(kFast));
  EXPECT_TRUE(would_stream(kSlow));
}

void expect_all_bytes(SharedCopy& copy) {
  constexpr size_t kMost = 70'000, kOffset = 3, kGuard = 100;
  std::vector<std::byte> from(kMost + kOffset);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 % 251);
  for (const size_t bytes : {size_t{0}, size_t{1}, 2 * KiB - 1, 2 * KiB, size_t{5000}, kMost}) {
    std::vector<std::byte> to(kMost + kGuard);
    copy.copy(to.data() + 1, from.data() + kOffset, bytes);
    EXPECT_TRUE(std::equal(to.data() + 1, to.data() + 1 + bytes, from.data() + kOffset)) << bytes;
    EXPECT_TRUE(std::all_of(to.data() + 1 + bytes, to.data() + to.size(), [](std::byte value) {
      return value == std::byte{};
    })) << bytes;
  }
}

TEST(SharedCopy, CopiesAllBytesByEitherStores) {
  const SlowClock clock(kSlow);
  SharedCopy copy(clock);
  expect_all_bytes(copy);
  std::vector<std::byte> from(kPiece), to(kPiece);
  while (!copy.streams()) copy.copy(to.data(), from.data(), kPiece);
  expect_all_bytes(copy);
}

}  // namespace
}  // namespace hvd

#include "core/negotiate/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "core/base/error.h"
#include "core/negotiate/testing.h"

namespace hvd {
namespace {

Signature everything() {
  Signature signature = allreduce_of("name", {kFreeDimension, 0, 3, int64_t{1} << 40});
  signature.shapes.push_back({});
  signature.operation.op = ReduceOp::max;
  signature.operation.device = DeviceKind::cuda;
  signature.operation.prescale = 0.5;
  signature.operation.postscale = -0.0;
  signature.operation.root = 17;
  signature.members = {0, 3, 27'599};
  signature.target = 9;
  signature.fuse_with_others = false;
  return signature;
}

Up full_up() {
  Up up;
  up.seen = {{0, 5}, {7, 1u << 31}};
  up.entries = {entry_by_slot(0, 3), entry_by_slot(kNoSlot - 1, 4),
                entry_in_full(everything(), 2, 7)};
  up.entries[1].substituted = true;
  up.entries[2].opinions.push_back(
      {.signature = barrier_of("b"), .rank = 1, .count = 300, .folded = 2});
  up.joined = {12, 3};
  up.done = {{3, 2}};
  up.shutdown = true;
  up.shutdown_by = 0;
  up.lost = 9;
  up.lost_why = "its process ended";
  up.stalled = true;
  up.expired = true;
  up.has_report = true;
  up.query = 77;
  up.report[{.names = {{0, "a", 2, {1, 5}, 30'000}, {4, "b", 0}},
             .more = 3,
             .last = "c",
             .joined = true}] = {0, 5};
  up.report[{.silent = true}] = {1};
  return up;
}

Down full_down() {
  Item defined = defines(everything(), 8);
  defined.retire = {1, 2};
  Item added = defines(add_set_of("s", {1, 2}));
  added.new_group = 6;
  Verdict fault{.type = Verdict::Type::fault, .group = 2};
  fault.items = {defines(barrier_of("b"))};
  fault.opinions = {{.signature = barrier_of("b"), .rank = 0, .count = 1}};
  fault.joined_fault = true;
  return {batch_of({by_slot(3), defined, defines(allreduce_of("a"))}, 5, uint64_t{1} << 40),
          batch_of({added}, kWorldGroup, 0),
          fault,
          {.type = Verdict::Type::join_done, .rank = 4},
          {.type = Verdict::Type::shut_down, .rank = 1, .text = "a stall"},
          {.type = Verdict::Type::abort, .rank = 3, .text = "killed"},
          {.type = Verdict::Type::query, .value = 5},
          {.type = Verdict::Type::knobs, .value = uint64_t{1} << 63}};
}

TEST(Wire, GivesBackWhatWasSentUp) {
  EXPECT_EQ(decode_up(encode(full_up())), full_up());
  EXPECT_EQ(decode_up(encode(Up{})), Up{});
  const Up nobody_lost{.stalled = true};
  EXPECT_EQ(decode_up(encode(nobody_lost)), nobody_lost);
}

TEST(Wire, TellsTheLossOfTheLauncherFromThatOfAnyRank) {
  const Up up{.lost = kLostLauncher, .lost_why = "it refuses connections"};
  EXPECT_EQ(decode_up(encode(up)), up);
  const Down down{{.type = Verdict::Type::abort, .rank = kLostLauncher, .text = up.lost_why}};
  EXPECT_EQ(decode_down(encode(down)), down);
}

TEST(Wire, GivesBackWhatWasSentDown) {
  EXPECT_EQ(decode_down(encode(full_down())), full_down());
  EXPECT_EQ(decode_down(encode(Down{})), Down{});
}

TEST(Wire, SpendsAFewBytesOnASteadyOperation) {
  Up up{.seen = {{0, 0}}, .entries = {entry_by_slot(5, 1)}};
  const size_t one = encode(up).size();
  EXPECT_LE(one, 9u);
  up.entries.push_back(entry_by_slot(6, 1));
  EXPECT_LE(encode(up).size(), one + 4);
  EXPECT_LE(encode({batch_of({by_slot(5), by_slot(6)})}).size(), 8u);
}

template <class Decode>
void expect_error_at_every_length(const ByteVector& bytes, Decode decode) {
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode(ConstBytes(bytes).first(length)), Error) << "length " << length;
  }
  ByteVector longer = bytes;
  longer.push_back({});
  EXPECT_THROW(decode(longer), Error);
}

TEST(Wire, RefusesAMessageThatIsCutShortOrTooLong) {
  expect_error_at_every_length(encode(full_up()), decode_up);
  expect_error_at_every_length(encode(full_down()), decode_down);
}

/// Any input is either rejected or decodes to a message that can be encoded again.
template <class Decode>
void expect_refused_or_whole(const ByteVector& bytes, Decode decode) {
  try {
    const auto message = decode(bytes);
    EXPECT_EQ(encode(decode(encode(message))), encode(message));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
  }
}

template <class Decode>
void expect_survives_changes(const ByteVector& bytes, Decode decode) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    ByteVector changed = bytes;
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    }
    expect_refused_or_whole(changed, decode);
  }
}

TEST(Wire, SurvivesChangedBytes) {
  expect_survives_changes(encode(full_up()), decode_up);
  expect_survives_changes(encode(full_down()), decode_down);
}

TEST(Wire, SurvivesNoise) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20'000; ++i) {
    ByteVector noise(random() % 64);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % (1 + i % 256));
    expect_refused_or_whole(noise, decode_up);
    expect_refused_or_whole(noise, decode_down);
  }
}

TEST(Wire, TakesNoMemoryForACountThatTheMessageDoesNotFill) {
  Writer out;
  out.put(uint8_t{0});
  out.put_count(0);
  out.put_count(kMaxEntriesInMessage);  // no entries follow
  EXPECT_THROW(decode_up(out.take()), Error);
}

TEST(Wire, RefusesACountAboveItsLimit) {
  Writer out;
  out.put_count(kMaxVerdictsInMessage + 1);
  EXPECT_THROW(decode_down(out.take()), Error);
}

TEST(Wire, RefusesWhatTheMachinesCouldNotUse) {
  const auto refused = [](const Verdict& verdict) {
    EXPECT_THROW(decode_down(encode({verdict})), Error);
  };
  refused(batch_of({}));
  refused(batch_of({Item{}}));                          // neither slot nor signature
  refused(batch_of({defines(add_set_of("s", {}))}));    // an empty set
  refused(batch_of({defines(remove_set_of("s", 0))}));  // the world
  refused(batch_of({defines(message_of("m", 1, 1))}));  // to itself
  Signature alone = message_of("m", 0, 1);
  alone.members = {0};
  refused(batch_of({defines(alone)}));
  Signature foreign = message_of("m", 0, 1);
  foreign.operation.root = 2;
  refused(batch_of({defines(foreign)}));
  Verdict unanimous{.type = Verdict::Type::fault};
  unanimous.items = {defines(barrier_of("b"))};
  unanimous.opinions = {{.signature = barrier_of("b")}};
  refused(unanimous);
  Signature huge = allreduce_of("a", {int64_t{1} << 40, int64_t{1} << 40});
  refused(batch_of({defines(huge)}));
  Signature join = barrier_of("j");
  join.operation.kind = OperationKind::join;  // joins are not negotiated by name
  refused(batch_of({defines(join)}));
  EXPECT_THROW(decode_up(encode(Up{.entries = {Entry{}}})), Error);
}

}  // namespace
}  // namespace hvd

#include "core/engine/names_in_flight.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace hvd {
namespace {

Request named(const std::string& name, GroupNumber group = kWorldGroup) {
  Request request;
  request.group = group;
  request.name = name;
  request.signature.name = hash_name(name);
  return request;
}

TEST(NamesInFlight, ANameIsTakenFromSubmissionToCompletion) {
  NamesInFlight names;
  const std::array first{named("a")}, second{named("a")};
  EXPECT_EQ(names.add(first), nullptr);
  EXPECT_EQ(names.add(second), &second[0]);
  names.remove(first);
  EXPECT_EQ(names.add(second), nullptr);
}

TEST(NamesInFlight, ProcessSetsHaveNamesOfTheirOwn) {
  NamesInFlight names;
  const std::array world{named("a")}, set{named("a", 1)};
  EXPECT_EQ(names.add(world), nullptr);
  EXPECT_EQ(names.add(set), nullptr);
  names.remove(world);
  EXPECT_EQ(names.add(set), &set[0]);
}

TEST(NamesInFlight, OfSeveralAllAreNotedOrNone) {
  NamesInFlight names;
  const std::array taken{named("c")};
  const std::array bundle{named("a"), named("b"), named("c"), named("d")};
  EXPECT_EQ(names.add(taken), nullptr);
  EXPECT_EQ(names.add(bundle), &bundle[2]);
  for (const char* free : {"a", "b", "d"}) {
    const std::array alone{named(free)};
    EXPECT_EQ(names.add(alone), nullptr) << free;
  }
}

TEST(NamesInFlight, TwoOfOneNameInABundleAreRefused) {
  NamesInFlight names;
  const std::array bundle{named("a"), named("a")};
  EXPECT_EQ(names.add(bundle), &bundle[1]);
  EXPECT_EQ(names.add(std::array{named("a")}), nullptr);
}

TEST(NamesInFlight, SeveralMessagesMayHaveOneName) {
  NamesInFlight names;
  std::array messages{named("m"), named("m")};
  for (Request& message : messages) message.signature.operation.kind = OperationKind::message;
  EXPECT_EQ(names.add(messages), nullptr);
  EXPECT_EQ(names.add(std::array{named("m")}), nullptr) << "an operation of that name";
  names.remove(messages);
  EXPECT_NE(names.add(std::array{named("m")}), nullptr) << "the operation is in flight";
}

TEST(NamesInFlight, AJoinHasNoName) {
  NamesInFlight names;
  std::array joins{named("join"), named("join")};
  for (Request& join : joins) join.signature.operation.kind = OperationKind::join;
  EXPECT_EQ(names.add(joins), nullptr);
}

}  // namespace
}  // namespace hvd

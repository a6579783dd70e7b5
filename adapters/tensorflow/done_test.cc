#include "adapters/tensorflow/done.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace hvd::tf {
namespace {

using Function = std::function<void()>;
static_assert(sizeof(Done) == sizeof(Function) && alignof(Done) == alignof(Function));

/// As TensorFlow does it: in another file, where the compiler does not know who made the function.
void run(DoneCallback* callback) { (*reinterpret_cast<Function*>(callback))(); }
void copy_and_run(DoneCallback* callback) {
  const Function copy = *reinterpret_cast<const Function*>(callback);
  copy();
}
void (*volatile run_elsewhere)(DoneCallback*) = run;
void (*volatile copy_and_run_elsewhere)(DoneCallback*) = copy_and_run;

Done copy_of(std::optional<Function>& function) {
  return Done(reinterpret_cast<const DoneCallback*>(&*function));
}

TEST(Done, RunsASmallFunctorThatIsStoredInPlace) {
  int runs = 0;
  std::optional<Function> function([&runs] { ++runs; });
  const Done done = copy_of(function);
  function.reset();
  done();
  done();
  EXPECT_EQ(runs, 2);
}

TEST(Done, RunsAFunctorOnTheHeap) {
  int sum = 0;
  const std::array<int, 100> large{1, 2, 3};
  std::optional<Function> function([large, &sum] { sum += large[0] + large[1] + large[2]; });
  const Done done = copy_of(function);
  function.reset();
  done();
  EXPECT_EQ(sum, 6);
}

TEST(Done, OwnsACopyOfTheFunctorUntilItIsDestroyed) {
  const auto held = std::make_shared<int>(0);
  std::optional<Function> function([held] { ++*held; });
  {
    const Done done = copy_of(function);
    EXPECT_EQ(held.use_count(), 3);  // the test, the function, its copy
    function.reset();
    EXPECT_EQ(held.use_count(), 2);
    done();
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 1);
}

TEST(Done, GivesTheFunctorAwayWhenItIsMoved) {
  const auto held = std::make_shared<int>(0);
  std::optional<Function> function([held] { ++*held; });
  auto first = std::make_unique<Done>(copy_of(function));
  const Done second(std::move(*first));
  first.reset();
  EXPECT_EQ(held.use_count(), 3);
  second();
  EXPECT_EQ(*held, 1);
}

TEST(Done, OfAnEmptyFunctionIsEmpty) {
  std::optional<Function> function(std::in_place);
  Done done = copy_of(function);
  EXPECT_FALSE(*reinterpret_cast<const Function*>(done.address()));
}

TEST(Done, IsCalledAndCopiedAsAFunction) {
  bool called = false;
  Done done(called);
  run_elsewhere(done.address());
  EXPECT_TRUE(std::exchange(called, false));
  copy_and_run_elsewhere(done.address());
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace hvd::tf

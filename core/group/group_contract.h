// Tests that every kind of Group must pass. To add a kind, instantiate GroupContract with a
// function that makes a GroupWorld; the tests are in group_contract_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/group/group.h"

namespace hvd {

/// A set of ranks that can form groups. Each rank is used by one thread at a time.
class GroupWorld {
 public:
  virtual ~GroupWorld() = default;
  virtual std::unique_ptr<Group> group(int rank, std::vector<int> members) = 0;
  /// Called when this rank made no progress: yields, or sleeps until a peer wakes it. `look_again`
  /// polls once and returns whether anything moved.
  virtual void rest(int rank, const std::function<bool()>& look_again) = 0;
  /// Sends everything that `rank` still has queued.
  virtual void finish(int rank) = 0;
};

struct GroupKind {
  std::string name;
  std::function<std::unique_ptr<GroupWorld>(int ranks)> make;
};

/// GoogleTest would otherwise print the bytes of the object.
inline void PrintTo(const GroupKind& kind, std::ostream* out) { *out << kind.name; }

class GroupContract : public testing::TestWithParam<GroupKind> {};

inline std::string name_of_group_kind(const testing::TestParamInfo<GroupKind>& info) {
  return info.param.name;
}

}  // namespace hvd

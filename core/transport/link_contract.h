// Tests that every kind of Link must pass. To add a kind, instantiate LinkContract with a function
// that makes a connected pair; the tests are in link_contract_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "core/transport/link.h"

namespace hvd {

/// Rank 0 holds `first`, rank 1 holds `second`. `keep_alive` owns resources that the ends use.
struct LinkPair {
  std::unique_ptr<Link> first;
  std::unique_ptr<Link> second;
  std::shared_ptr<void> keep_alive;
};

struct LinkKind {
  std::string name;
  std::function<LinkPair()> make;
};

class LinkContract : public testing::TestWithParam<LinkKind> {};

inline std::string name_of_kind(const testing::TestParamInfo<LinkKind>& info) {
  return info.param.name;
}

}  // namespace hvd

#include "core/transport/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

TEST(Interfaces, LoopbackIsAmongThem) {
  const auto all = interface_addresses();
  const auto is_loopback = [](const InterfaceAddress& one) {
    return one.loopback && one.host == "127.0.0.1";
  };
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), is_loopback));
}

TEST(Interfaces, TheWayToLoopbackIsLoopback) {
  EXPECT_EQ(address_towards({"127.0.0.1", 9}), "127.0.0.1");
  EXPECT_EQ(address_towards({"no-such-host.invalid", 9}), "");
}

}  // namespace
}  // namespace hvd

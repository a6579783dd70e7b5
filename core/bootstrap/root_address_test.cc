#include "core/bootstrap/root_address.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"

namespace hvd {
namespace {

TEST(RootAddress, ComesBackAsItWas) {
  for (const std::vector<std::string>& addresses :
       {std::vector<std::string>{}, {"10.0.0.7"}, {"10.0.0.7", "fd00::7", "192.168.1.1"}}) {
    const RootAddress root{4321, make_job_key(), "00ff", addresses};
    const std::string text = to_text(root);
    EXPECT_EQ(text.find_first_of(" =\n;"), std::string::npos) << "PMI's text would be cut here";
    const RootAddress read = read_root_address(text);
    EXPECT_EQ(read.port, root.port);
    EXPECT_EQ(read.key.bytes, root.key.bytes);
    EXPECT_EQ(read.machine, root.machine);
    EXPECT_EQ(read.addresses, root.addresses);
  }
}

TEST(RootAddress, OfMoreAddressesThanThereIsRoomForTheBestRemain) {
  RootAddress root{1, make_job_key(), "00ff", {}};
  for (int i = 0; i < 100; ++i) root.addresses.push_back("10.100.200." + std::to_string(i));
  const std::string text = to_text(root);
  EXPECT_LE(text.size(), kMaxRendezvousBytes);
  const RootAddress read = read_root_address(text);
  ASSERT_GT(read.addresses.size(), 10u);
  for (size_t i = 0; i < read.addresses.size(); ++i)
    EXPECT_EQ(read.addresses[i], root.addresses[i]);
}

TEST(RootAddress, WhatIsNoneIsRefusedWithoutBeingShown) {
  const std::string good = to_text({1, make_job_key(), "m", {"a"}});
  const std::string key = good.substr(good.find(',', 9) + 1, 64);
  for (const std::string& text :
       {std::string(), std::string("horovod2,1"), std::string("horovod1"),
        std::string("horovod1,99999,") + key, std::string("horovod1,1,") + key.substr(1),
        std::string("horovod1,1,x") + key.substr(1) + ",m", good + std::string(2000, 'x')}) {
    try {
      read_root_address(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(key.substr(1, 20)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hvd

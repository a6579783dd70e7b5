#include "launcher/options/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/sanitizer_testing.h"
#include "launcher/options/text_file.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TextFile, ThatFindsNoFreeDescriptorIsRefusedWithTheLimit) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "UBSan needs descriptors";
  const auto read_without_room = [] {
    const rlimit standard_ones{.rlim_cur = 3, .rlim_max = 20};
    setrlimit(RLIMIT_NOFILE, &standard_ones);
    std::fputs(refusal([] { read_text_file("/dev/null", "host file"); }).c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(read_without_room(), testing::ExitedWithCode(0),
              "it cannot be read: Too many open files: the limit of this process is 3 open "
              "descriptors; raise the "
              "limit: ulimit -n 20$");
}

TEST(Hosts, LoopbackAndTheMachinesOwnNamesAndAddressesAreLocal) {
  const HostNames machine{"box.lab.org", {"10.0.0.1", "fd00::1"}};
  for (const char* name :
       {"localhost", "127.0.0.1", "::1", "box", "box.lab.org", "10.0.0.1", "fd00::1"})
    EXPECT_TRUE(is_local(name, machine)) << name;
  EXPECT_TRUE(is_local("box.lab.org", {"box", {}}));
  for (const char* name : {"LOCALHOST", "Box", "BOX.lab.ORG"})
    EXPECT_TRUE(is_local(name, machine)) << name;
  for (const char* name : {"other", "box.elsewhere.org", "10.0.0.2", "fd00::2", "boxes"})
    EXPECT_FALSE(is_local(name, machine)) << name;
  EXPECT_FALSE(is_local("10.0.0.2", {"10", {}})) << "an address has no short form";
}

TEST(Hosts, EntriesOfOneHostAreOneAtTheFirstPlace) {
  const HostNames box{"box", {"10.0.0.1"}};
  EXPECT_THAT(merged({{"localhost", 2}, {"10.0.0.1", 3}}, box), ElementsAre(Host{"localhost", 5}));
  EXPECT_THAT(merged({{"far", 1}, {"box", 2}, {"far", 3}, {"127.0.0.1", 4}}, box),
              ElementsAre(Host{"far", 4}, Host{"box", 6}));
  EXPECT_THAT(merged({{"Far", 1}, {"far", 2}}, box), ElementsAre(Host{"Far", 3}));
}

TEST(Filled, HasTheHostsThatAreNeededWithTheSlotsThatAreNeeded) {
  EXPECT_THAT(filled({{"a", 2}, {"b", 4}, {"c", 1}}, 3), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(filled({{"a", 1}, {"b", 1}}, 1), ElementsAre(Host{"a", 1}));
}

TEST(FirstWorkers, AreOnePerSlot) {
  EXPECT_THAT(first_workers({{"a", 2}, {"b", 1}}),
              ElementsAre(WorkerId{0, 0}, WorkerId{0, 1}, WorkerId{1, 0}));
}

TEST(Filled, MoreProcessesThanSlotsAreRefusedWithBothNumbers) {
  EXPECT_THAT(refusal([] {
                filled({{"a", 1}, {"b", 3}}, 5);
              }),
              HasSubstr("-np 5 asks for more processes than there are slots: 4 available "
                        "(a:1, b:3); a host without a number has 1 slot"));
}

}  // namespace
}  // namespace hvd::launcher

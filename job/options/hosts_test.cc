#include "job/options/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/error.h"
#include "job/options/text_file.h"

namespace hvd::job {
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
  const auto read_without_room = [] {
    const rlimit standard_ones{.rlim_cur = 3, .rlim_max = 20};
    setrlimit(RLIMIT_NOFILE, &standard_ones);
    std::fputs(refusal([] { read_text_file("/dev/null", "host file"); }).c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(
      read_without_room(), testing::ExitedWithCode(0),
      "it cannot be read: Too many open files: this process may have 3 descriptors open; raise the "
      "limit: ulimit -n 20$");
}

TEST(Hosts, AreNamesWithSlots) {
  EXPECT_THAT(parse_hosts("a:1,b-2.x_y:16"), ElementsAre(Host{"a", 1}, Host{"b-2.x_y", 16}));
}

TEST(Hosts, MalformedListsAreRefusedNamingTheItem) {
  for (const char* bad : {"", "a", "a:", ":1", "a:0", "a:-1", "a:1,", ",a:1", "a:1;b:2", "a:1:2",
                          "a b:1", "a:x", "a:1 ", "a:99999999999"})
    EXPECT_THAT(refusal([&] { parse_hosts(bad); }), HasSubstr("expected host:slots,host:slots"))
        << bad;
  EXPECT_THAT(refusal([] { parse_hosts("a:1,b:x"); }), HasSubstr("found 'b:x'"));
}

TEST(HostFile, HasOneHostALineAndIgnoresTrailingBlanks) {
  EXPECT_THAT(parse_hostfile("a slots=2\nb\tslots=3  \t\r\n\nc   slots=1"),
              ElementsAre(Host{"a", 2}, Host{"b", 3}, Host{"c", 1}));
}

TEST(HostFile, MalformedLinesAreRefusedWithTheirNumber) {
  EXPECT_THAT(refusal([] { parse_hostfile("a slots=2\nb\n"); }), HasSubstr("line 2"));
  for (const char* bad : {"a slots=", "a slots=0", "a slots=2 # two", "a 2", " a slots=1", "a:2"})
    EXPECT_THAT(refusal([&] { parse_hostfile(bad); }), HasSubstr("expected '<host> slots=<n>'"))
        << bad;
  EXPECT_THAT(refusal([] { parse_hostfile("\n \n"); }), HasSubstr("no host"));
}

TEST(Hosts, MayBeAddressesOfBothKinds) {
  EXPECT_THAT(parse_hosts("10.0.0.1:1,[fd00::1]:2,[::ffff:10.0.0.2]:3"),
              ElementsAre(Host{"10.0.0.1", 1}, Host{"fd00::1", 2}, Host{"::ffff:10.0.0.2", 3}));
  for (const char* bad :
       {"fd00::1:2", "[fd00::1]", "[fd00::1:2", "[name]:1", "[]:1", "[fd00::g]:1"})
    EXPECT_THAT(refusal([&] { parse_hosts(bad); }), HasSubstr("expected host:slots")) << bad;
  EXPECT_THAT(parse_hostfile("fd00::1 slots=1\n[fd00::2] slots=2\n"),
              ElementsAre(Host{"fd00::1", 1}, Host{"fd00::2", 2}));
}

TEST(Hosts, NoHostIsAnOptionOfSsh) {
  EXPECT_THAT(refusal([] { parse_hosts("-oProxyCommand=x:1"); }), HasSubstr("expected host:slots"));
  EXPECT_THAT(refusal([] { parse_hosts("-v:1"); }), HasSubstr("expected host:slots"));
  EXPECT_THAT(refusal([] { parse_hostfile("-v slots=1"); }), HasSubstr("expected '<host>"));
}

TEST(Hosts, LoopbackAndTheMachinesOwnNamesAndAddressesAreLocal) {
  const Machine machine{"box.lab.org", {"10.0.0.1", "fd00::1"}};
  for (const char* name :
       {"localhost", "127.0.0.1", "::1", "box", "box.lab.org", "10.0.0.1", "fd00::1"})
    EXPECT_TRUE(is_local(name, machine)) << name;
  EXPECT_TRUE(is_local("box.lab.org", {"box", {}}));
  for (const char* name : {"other", "box.elsewhere.org", "10.0.0.2", "fd00::2", "boxes"})
    EXPECT_FALSE(is_local(name, machine)) << name;
  EXPECT_FALSE(is_local("10.0.0.2", {"10", {}})) << "an address has no short form";
}

TEST(Hosts, EntriesOfOneHostAreOneAtTheFirstPlace) {
  const Machine box{"box", {"10.0.0.1"}};
  EXPECT_THAT(merged({{"localhost", 2}, {"10.0.0.1", 3}}, box), ElementsAre(Host{"localhost", 5}));
  EXPECT_THAT(merged({{"far", 1}, {"box", 2}, {"far", 3}, {"127.0.0.1", 4}}, box),
              ElementsAre(Host{"far", 4}, Host{"box", 6}));
}

TEST(Placement, IsListedByHost) {
  const auto hosts = by_host(place({{"a", 2}, {"b", 1}, {"c", 1}}, 3));
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].size(), 2u);
  EXPECT_EQ(hosts[1].front().host, "b");
}

TEST(Placement, FillsOneHostInOrder) {
  EXPECT_THAT(place({{"a", 3}}, 2),
              ElementsAre(Place{"a", 0, 2, 0, 2, 0, 1}, Place{"a", 1, 2, 1, 2, 0, 1}));
}

TEST(Placement, CountsHostsThatHaveTheLocalRank) {
  EXPECT_THAT(place({{"a", 2}, {"b", 1}, {"c", 2}}, 5),
              ElementsAre(Place{"a", 0, 5, 0, 2, 0, 3}, Place{"a", 1, 5, 1, 2, 0, 2},
                          Place{"b", 2, 5, 0, 1, 1, 3}, Place{"c", 3, 5, 0, 2, 2, 3},
                          Place{"c", 4, 5, 1, 2, 1, 2}));
}

TEST(Placement, LeavesUnneededHostsOut) {
  EXPECT_THAT(place({{"a", 1}, {"b", 1}}, 1), ElementsAre(Place{"a", 0, 1, 0, 1, 0, 1}));
}

TEST(Placement, MoreProcessesThanSlotsAreRefusedWithBothNumbers) {
  EXPECT_THAT(refusal([] {
                place({{"a", 1}, {"b", 3}}, 5);
              }),
              HasSubstr("-np 5 asks for more processes than there are slots: 4 available"));
}

}  // namespace
}  // namespace hvd::job

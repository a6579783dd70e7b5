#include "launcher/options/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

std::string list_refusal(const char* text) {
  return refusal_of([&] { parse_hosts(text); });
}

std::string file_refusal(const char* text) {
  return refusal_of([&] { parse_hostfile(text, "nodes"); });
}

std::vector<Host> file(std::string_view text) { return parse_hostfile(text, "nodes"); }

TEST(HostList, HasNamesWithSlots) {
  EXPECT_THAT(parse_hosts("a:1,b-2.x_y:16"), ElementsAre(Host{"a", 1}, Host{"b-2.x_y", 16}));
  EXPECT_THAT(parse_hosts("NODE1:2"), ElementsAre(Host{"NODE1", 2}));
}

TEST(HostList, AHostWithoutANumberHasOneSlot) {
  EXPECT_THAT(parse_hosts("localhost"), ElementsAre(Host{"localhost", 1}));
  EXPECT_THAT(parse_hosts("a,b:2,[fd00::1]"),
              ElementsAre(Host{"a", 1}, Host{"b", 2}, Host{"fd00::1", 1}));
}

TEST(HostList, BlanksAroundItemsAndACommaAtTheEndMeanNothing) {
  for (const char* text : {"a:1, b:1", " a:1,b:1 ", "a:1 ,\tb:1,", "a:1,b:1, "})
    EXPECT_THAT(parse_hosts(text), ElementsAre(Host{"a", 1}, Host{"b", 1})) << text;
}

TEST(HostList, MayHaveAddressesOfBothKinds) {
  EXPECT_THAT(parse_hosts("10.0.0.1:1,[fd00::1]:2,[::ffff:10.0.0.2]:3"),
              ElementsAre(Host{"10.0.0.1", 1}, Host{"fd00::1", 2}, Host{"::ffff:10.0.0.2", 3}));
}

TEST(HostList, ARefusalNamesThePartThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the host name is missing"},
      {",a:1", "the host name is missing"},
      {"a:1,,b:1", "the host name is missing"},
      {":1", "the host name is missing"},
      {"a:", "'' is not a number of slots from 1 to 65536"},
      {"a:1,b:x", "'x' is not a number of slots"},
      {"a:0", "'0' is not a number"},
      {"a:-1", "'-1' is not a number"},
      {"a:1:2", "'1:2' is not a number"},
      {"a:1;b:2", "'1;b:2' is not a number"},
      {"a:99999999999", "'99999999999' is not a number"},
      {"a b:1", "'a b:1': separate hosts by commas"},
      {"a:1 b:1", "'a:1 b:1': separate hosts by commas"},
      {"a:1\nb:1", "'a:1\\x0ab:1': separate hosts by commas"},
      {"me@a:1", "'me@a': set the user of a host in ~/.ssh/config (Host a, User me)"},
      {"a\xc2\xa0:1", "'a\\xc2\\xa0' is not a host name"},
      {"fd00::1:2", "'fd00::1:2': write an IPv6 address in brackets"},
      {"fd00::1", "'fd00::1': write an IPv6 address in brackets"},
      {"[fd00::1:2", "'[fd00' is not a host name"},
      {"[fd00::g]:1", "'[fd00::g]': write an IPv6 address"},
      {"[name]:1", "'[name]' is not a host name"},
      {"[]:1", "'[]' is not a host name"},
      {"-oProxyCommand=x:1", "'-oProxyCommand=x' is not a host name"},
      {"-v:1", "'-v' is not a host name"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_THAT(list_refusal(text), HasSubstr(part)) << text;
    EXPECT_THAT(list_refusal(text), HasSubstr("expected host:slots,host:slots")) << text;
  }
}

TEST(HostFile, HasOneHostPerLine) {
  EXPECT_THAT(file("a slots=2\nb\tslots=3  \t\r\n\nc   slots=1"),
              ElementsAre(Host{"a", 2}, Host{"b", 3}, Host{"c", 1}));
}

TEST(HostFile, IsReadAsOpenMpiReadsIt) {
  EXPECT_THAT(file("# nodes of the lab\n"
                   "  a slots=2   # the fast one\n"
                   "b\n"
                   "b\n"
                   "c slots = 2\n"
                   "d slots= 2 max-slots=4\n"
                   "e slots =2 max_slots = 2\n"
                   "f max-slots=3\n"
                   "G SLOTS=2\n"),
              ElementsAre(Host{"a", 2}, Host{"b", 1}, Host{"b", 1}, Host{"c", 2}, Host{"d", 2},
                          Host{"e", 2}, Host{"f", 1}, Host{"G", 2}));
}

TEST(HostFile, IsReadAsMpichAndIntelMpiReadIt) {
  EXPECT_THAT(file("a:2\nb:4 # four\nc\n[fd00::1]:2\n"),
              ElementsAre(Host{"a", 2}, Host{"b", 4}, Host{"c", 1}, Host{"fd00::1", 2}));
}

TEST(HostFile, MayBeginWithAByteOrderMark) {
  EXPECT_THAT(file("\xef\xbb\xbf# nodes\r\na slots=2\r\n"), ElementsAre(Host{"a", 2}));
  EXPECT_EQ(file_refusal("\xff\xfe"
                         "a"),
            "host file nodes: it is encoded in UTF-16; save it as UTF-8");
}

TEST(HostFile, NeedsNoBracketsAroundAnAddress) {
  EXPECT_THAT(file("fd00::1 slots=1\n[fd00::2] slots=2\nfd00::3\n"),
              ElementsAre(Host{"fd00::1", 1}, Host{"fd00::2", 2}, Host{"fd00::3", 1}));
}

TEST(HostFile, ARefusalNamesFileLineAndThePartThatIsWrong) {
  EXPECT_EQ(file_refusal("a slots=2\n\nb slots=x # ?\n"),
            "host file nodes, line 3: 'x' is not a number of slots from 1 to 65536 of 'slots=x'; "
            "expected '<host> slots=<n>', found 'b slots=x'");
  const std::pair<const char*, const char*> cases[] = {
      {"a slots=", "'' is not a number of slots"},
      {"a slots=0", "'0' is not a number of slots"},
      {"a slots", "'' is not a number of slots from 1 to 65536 of 'slots'"},
      {"a slots=2 max-slots=many", "of 'max-slots=many'"},
      {"a slots=4 max-slots=2", "slots=4 is more than max-slots=2"},
      {"a 2", "'2' is unknown; allowed are slots=<n> and max-slots=<n>"},
      {"a np=2", "'np=2' is unknown"},
      {"a = 2", "'=2' is unknown"},
      {"a:x", "'x' is not a number of slots"},
      {"slots=2", "'slots=2' is not a host name"},
      {"me@a slots=1", "(Host a, User me)"},
      {"-v slots=1", "'-v' is not a host name"},
      {"a\xc2\xa0slots=1", "'a\\xc2\\xa0slots=1' is not a host name"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_THAT(file_refusal(text), HasSubstr(part)) << text;
    EXPECT_THAT(file_refusal(text), HasSubstr("host file nodes, line 1: ")) << text;
  }
  for (const char* empty : {"", "\n \n", "# nothing\n"})
    EXPECT_EQ(file_refusal(empty), "host file nodes: it lists no host");
}

}  // namespace
}  // namespace hvd::launcher

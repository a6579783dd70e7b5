#include "launcher/discovery.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/transport/socket.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseDiscovered, ReadsOneHostPerLine) {
  EXPECT_THAT(parse_discovered("b:2\n\n  a \n[fd00::1]:3\r\n[fd00::2]", "hosts", 4),
              ElementsAre(Host{"b", 2}, Host{"a", 4}, Host{"fd00::1", 3}, Host{"fd00::2", 4}));
  EXPECT_THAT(parse_discovered("", "hosts", 1), IsEmpty());
}

TEST(ParseDiscovered, RefusesOtherLines) {
  for (const char* text : {"a:2,b:2", "a:-1", "a b", "a:x"})
    EXPECT_THROW(parse_discovered(text, "hosts", 1), Error) << text;
}

class DiscoveryTest : public ::testing::Test {
TEST(ParseDiscovered, LeavesOutHostsWithoutSlots) {
  EXPECT_THAT(parse_discovered("a:0\nb:1", "hosts", 4), ElementsAre(Host{"b", 1}));
}

std::string complaint_about(const std::string& text) try {
  parse_discovered(text, "./hosts.sh", 1);
  return "none";
} catch (const Error& error) {
  return error.what();
}

TEST(ParseDiscovered, NamesTheScriptAndWhatIsExpected) {
  EXPECT_EQ(complaint_about("a:1\n<html>502 Bad gateway</html>"),
            "./hosts.sh printed '<html>502 Bad gateway</html>': expected one host per line, "
            "'host:slots' or 'host'");
  EXPECT_EQ(complaint_about("a:b"),
            "./hosts.sh printed 'a:b': 'b' is not a number of slots from 1 to 65536; expected one "
            "host per line, 'host:slots' or 'host'");
  EXPECT_EQ(complaint_about(std::string(200, '<')),
            "./hosts.sh printed '" + std::string(100, '<') +
                "...': expected one host per line, 'host:slots' or 'host'");
}

 protected:
  DiscoveryTest() {
    folder = std::filesystem::path(::testing::TempDir()) /
             fmt::format("discovery-{}-{}", ::getpid(), ++made);
    std::filesystem::create_directories(folder);
  }
  ~DiscoveryTest() override { std::filesystem::remove_all(folder); }

  DiscoveryPlan script(const std::string& text) {
    const std::string path = folder / "hosts.sh";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return {.script = path,
            .program = path,
            .slots_per_host = 2,
            .environment = {"PATH=/usr/bin:/bin"}};
  }
  static Discovery::Result next(Discovery& discovery) {
    for (;;) {
      if (auto result = discovery.step(std::chrono::steady_clock::now())) return *std::move(result);
      wait_until_ready(discovery.fd(), POLLIN, discovery.deadline());
    }
  }

  static inline int made = 0;
  std::filesystem::path folder;
  const ProcessDefaults defaults = current_defaults();
};

TEST_F(DiscoveryTest, GivesWhatEachRunPrints) {
  Discovery discovery(
      script("echo a; [ -e " + (folder / "more").string() + " ] && echo b:1; exit 0"), defaults);
  EXPECT_THAT(next(discovery).hosts, ElementsAre(Host{"a", 2}));
  std::ofstream(folder / "more") << "x";
  EXPECT_THAT(next(discovery).hosts, ElementsAre(Host{"a", 2}, Host{"b", 1}));
}

TEST_F(DiscoveryTest, TellsWhyARunFailed) {
  Discovery fails(script("echo a; echo warning >&2; echo no answer >&2; exit 3"), defaults);
  const Discovery::Result result = next(fails);
  EXPECT_THAT(result.problem, HasSubstr("exited with code 3: no answer"));
  EXPECT_THAT(result.hosts, IsEmpty());
  Discovery nonsense(script("echo a:b"), defaults);
  EXPECT_THAT(next(nonsense).problem, HasSubstr("'b' is not a number of slots"));
  DiscoveryPlan missing = script("");
  missing.program += ".missing";
  Discovery nothing(missing, defaults);
  EXPECT_THAT(next(nothing).problem, HasSubstr("could not be started: No such file"));
}

TEST_F(DiscoveryTest, AFirstRunThatFailsIsAnError) {
  EXPECT_THROW(await_hosts(script("exit 1"), 1, 5s), Error);
}

TEST_F(DiscoveryTest, WaitsForEnoughSlots) {
  const std::string count = (folder / "count").string();
  const DiscoveryPlan plan = script("echo x >> " + count + "; for line in $(cat " + count +
                                    "); do hosts=1$hosts; done; echo a:${#hosts}");
  EXPECT_THAT(await_hosts(plan, 2, 60s), ElementsAre(Host{"a", 2}));
  EXPECT_THROW(await_hosts(script("echo a:1"), 2, 0s), Error);
}

}  // namespace
}  // namespace hvd::launcher

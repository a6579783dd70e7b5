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
using ::testing::EndsWith;
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

class DiscoveryTest : public ::testing::Test {
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

TEST_F(DiscoveryTest, ARunThatTakesTooLongIsKilled) {
  Discovery hangs(script("exec sleep 60"), defaults);
  hangs.set_patience(500ms);
  EXPECT_THAT(next(hangs).problem, HasSubstr("hosts.sh did not end within 0.5 s"));
}

class AwaitHostsTest : public DiscoveryTest {
 protected:
  std::vector<Host> await(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience) {
    return await_hosts(plan, slots, patience, [&](const std::string& line) {
      said.push_back(line.substr(line.find("hosts.sh")));
    });
  }
  std::string error(const DiscoveryPlan& plan, int slots, std::chrono::seconds patience) try {
    await(plan, slots, patience);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
  /// What makes a script print one more `x` each time, into `$hosts`.
  std::string counting() const {
    const std::string count = (folder / "count").string();
    return "echo x >> " + count + "; for line in $(cat " + count + "); do hosts=1$hosts; done; ";
  }

  std::vector<std::string> said;
};

TEST_F(AwaitHostsTest, AFirstRunThatFailsIsAnError) {
  EXPECT_THAT(error(script("exit 1"), 1, 5s), EndsWith("hosts.sh exited with code 1"));
}

TEST_F(AwaitHostsTest, WaitsForEnoughSlots) {
  EXPECT_THAT(await(script(counting() + "echo a:${#hosts}"), 3, 60s), ElementsAre(Host{"a", 3}));
  EXPECT_THAT(said, ElementsAre("hosts.sh printed 2 slots, fewer than the 3 of --min-np: waiting "
                                "up to 60 s for more (--elastic-timeout)"));
  EXPECT_THAT(error(script("echo a:1"), 2, 0s),
              EndsWith("hosts.sh printed 1 slot, fewer than the 2 of --min-np, for 0 s "
                       "(--elastic-timeout)"));
}

TEST_F(AwaitHostsTest, TellsOnceOfAProblemThatComesLater) {
  const DiscoveryPlan plan = script(counting() + "[ ${#hosts} -gt 1 ] && exit 3; echo a:1");
  EXPECT_THAT(error(plan, 2, 3s),
              EndsWith("hosts.sh exited with code 3; it has not printed the 2 slots of --min-np "
                       "within 3 s (--elastic-timeout)"));
  EXPECT_THAT(said, ElementsAre("hosts.sh exited with code 3; it is run again every second, for "
                                "up to 3 s (--elastic-timeout)"));
}

TEST_F(AwaitHostsTest, DoesNotWaitLongerForAScriptThatHangs) {
  EXPECT_THAT(error(script("exec sleep 60"), 1, 3s),
              EndsWith("hosts.sh did not end within 3 s; it has not printed the slot of --min-np "
                       "within 3 s (--elastic-timeout)"));
  EXPECT_THAT(said, ElementsAre("hosts.sh has run for 2 s: waiting for its end"));
}

}  // namespace
}  // namespace hvd::launcher

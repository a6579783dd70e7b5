#include "launcher/remote/ssh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hvd::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SshOptions options() {
  SshOptions options;
  options.program = "/usr/bin/ssh";
  options.agent = "/opt/it's/horovodrun";
  return options;
}

StartRow of(int code, std::string_view said, const SshOptions& with = options()) {
  return diagnosis(with, "node2", {.code = code}, said, "");
}

TEST(Ssh, NeverAsksAndHasNothingSecretInItsLine) {
  const auto command = agent_command(options(), "node2", UnknownHost::as_configured);
  EXPECT_EQ(command.front(), "/usr/bin/ssh");
  EXPECT_THAT(command, Contains("BatchMode=yes"));
  const std::vector<std::string> last(command.end() - 3, command.end());
  EXPECT_THAT(last, ElementsAre("--", "node2", "exec '/opt/it'\\''s/horovodrun' --agent"));
}

TEST(Ssh, AcceptsAnUnknownHostOnlyWhereItsConfigurationSaysToAsk) {
  const auto accepts = [](UnknownHost unknown) {
    return std::ranges::count(agent_command(options(), "node2", unknown),
                              "StrictHostKeyChecking=accept-new");
  };
  EXPECT_EQ(accepts(UnknownHost::accept), 1);
  EXPECT_EQ(accepts(UnknownHost::as_configured), 0);
  EXPECT_EQ(unknown_host_by("user me\nstricthostkeychecking ask\nport 22\n"), UnknownHost::accept);
  for (const char* stricter_or_unknown :
       {"stricthostkeychecking true\n", "stricthostkeychecking yes\n", "stricthostkeychecking\n",
        "stricthostkeychecking false\n", "stricthostkeychecking accept-new\n", "",
        "proxycommand stricthostkeychecking ask\n"})
    EXPECT_EQ(unknown_host_by(stricter_or_unknown), UnknownHost::as_configured)
        << stricter_or_unknown;
}

TEST(Ssh, IsAskedForItsSettingsAsItIsCalledLater) {
  SshOptions with = options();
  with.port = 2222;
  auto expected = agent_command(with, "node2", UnknownHost::as_configured);
  expected.insert(expected.begin() + 1, "-G");
  expected.pop_back();  // the command
  EXPECT_EQ(settings_command(with, "node2"), expected);
}

TEST(Ssh, TakesPortAndKey) {
  SshOptions with = options();
  with.port = 2222;
  with.identity = "/k";
  const auto command = agent_command(with, "node2", UnknownHost::accept);
  const auto port = std::ranges::find(command, "-p");
  ASSERT_NE(port, command.end());
  EXPECT_EQ(*(port + 1), "2222");
  EXPECT_THAT(command, Contains("/k"));
  EXPECT_EQ(by_hand(with, "node2"), "ssh -p 2222 -i /k node2");
}

TEST(Ssh, InAPodIsTheOperatorsScript) {
  SshOptions with = options();
  with.kubexec = "/etc/mpi/kubexec.sh";
  EXPECT_THAT(
      agent_command(with, "worker-0", UnknownHost::as_configured),
      ElementsAre("/etc/mpi/kubexec.sh", "worker-0", "exec '/opt/it'\\''s/horovodrun' --agent"));
  EXPECT_THAT(of(0, "", with).advice, Contains(HasSubstr("kubectl exec -i")));
}

TEST(Diagnosis, NamesTheStepAndTheCommandThatHelps) {
  const struct {
    const char* said;
    StartStep step;
    const char* advice;
  } cases[] = {
      {"ssh: Could not resolve hostname node2: Name or service not known\r\n", StartStep::resolve,
       "getent hosts node2"},
      {"root@node2: Permission denied (publickey).\r\n", StartStep::ssh, "ssh-copy-id node2"},
      {"Host key verification failed.\r\n", StartStep::ssh, "ssh-keygen -R node2"},
      {"No ED25519 host key is known for node2 and you have requested strict checking.\r\n"
       "Host key verification failed.\r\n",
       StartStep::ssh, "ssh-keyscan node2"},
      {"ssh: connect to host node2 port 22: Connection refused\r\n", StartStep::ssh,
       "horovodrun -p PORT"},
      {"ssh: connect to host node2 port 22: Connection timed out\r\n", StartStep::ssh,
       "ping -c 1 node2"},
      {"ssh: connect to host node2 port 22: No route to host\r\n", StartStep::ssh,
       "ping -c 1 node2"},
      {"something new\n", StartStep::ssh, "ssh node2 true"},
      {"", StartStep::ssh, "ssh node2 true"},
  };
  for (const auto& one : cases) {
    const StartRow row = of(255, one.said);
    EXPECT_EQ(row.step, one.step) << one.said;
    EXPECT_TRUE(row.failed());
    EXPECT_THAT(row.advice, Contains(HasSubstr(one.advice))) << one.said;
  }
  EXPECT_EQ(of(255, "Warning: x\r\nroot@node2: Permission denied (publickey).\r\n").problem,
            "root@node2: Permission denied (publickey).");
}

TEST(Diagnosis, AnAgentThatIsNotThereIsNotTheFaultOfSsh) {
  EXPECT_EQ(of(127, "sh: 1: not found").step, StartStep::agent);
  EXPECT_THAT(of(127, "").problem, HasSubstr("horovodrun was not found there"));
  EXPECT_THAT(of(126, "").problem, HasSubstr("is not executable"));
  EXPECT_THAT(of(2, "horovodrun: unknown flag '--agent'").problem, HasSubstr("older version"));
  EXPECT_THAT(of(1, "horovodrun: internal error").problem, HasSubstr("internal error"));
  const StartRow row =
      diagnosis(options(), "node2", {.signal = 9}, "", "This account is closed.\n");
  EXPECT_THAT(row.advice, Contains(HasSubstr("This account is closed.")));
}

TEST(Diagnosis, AnotherVersionIsNamedWithBoth) {
  EXPECT_THAT(other_version(options(), "node2", "1.0", "2.0").problem,
              HasSubstr("is version 1.0 there and 2.0 here"));
}

}  // namespace
}  // namespace hvd::launcher

#include "launcher/options/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <tuple>
#include <utility>

namespace hvd::launcher {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST(JobEnvironment, LeavesShellFunctionsDevicesAndSecretsBehind) {
  const Environment launcher{{"BASH_FUNC_x%%", "f"},
                             {"OLDPWD", "/"},
                             {"CUDA_VISIBLE_DEVICES", "0"},
                             {"OLD_CUDA_VISIBLE_DEVICES", "0"},
                             {"HOROVOD_SECRET_KEY", "s"},
                             {"PATH", "/bin"},
                             {"PWD", "/"}};
  EXPECT_THAT(job_environment(launcher, {}), UnorderedElementsAre(Key("PATH"), Key("PWD")));
}

TEST(JobEnvironment, HasWhatFlagsSetInsteadOfWhatWasThere) {
  Options options;
  options.knobs = {{"HOROVOD_CYCLE_TIME", "2"}};
  EXPECT_THAT(job_environment({{"HOROVOD_CYCLE_TIME", "1"}}, options),
              UnorderedElementsAre(Pair("HOROVOD_CYCLE_TIME", "2")));
}

TEST(JobEnvironment, MarksCyclesOnlyInATimeline) {
  Options options;
  options.knobs = {{"HOROVOD_TIMELINE_MARK_CYCLES", "1"}};
  EXPECT_THAT(job_environment({}, options), IsEmpty());
  EXPECT_THAT(job_environment({{"HOROVOD_TIMELINE", "t.json"}}, options), SizeIs(2));
  options.knobs.emplace("HOROVOD_TIMELINE", "u.json");
  EXPECT_THAT(job_environment({}, options), SizeIs(2));
}

StoreAddress store_at(uint16_t port) {
  StoreAddress address;
  address.store = {"10.0.0.7", port};
  return address;
}

TEST(JobEnvironment, LetsRanksSayMoreIfTheLauncherDoes) {
  Options options;
  options.verbose = true;
  EXPECT_THAT(job_environment({}, options),
              UnorderedElementsAre(Pair("HOROVOD_LOG_LEVEL", "info")));
  EXPECT_THAT(job_environment({{"HOROVOD_LOG_LEVEL", "error"}}, options),
              UnorderedElementsAre(Pair("HOROVOD_LOG_LEVEL", "error")));
}

TEST(JobEnvironment, TellsNcclToLeaveInfinibandAlone) {
  Options options;
  options.no_infiniband = true;
  EXPECT_THAT(job_environment({{"NCCL_IB_DISABLE", "0"}}, options),
              UnorderedElementsAre(Pair("NCCL_IB_DISABLE", "1")));
}

TEST(CommitGrace, IsForAllWhenTheLauncherIsLost) {
  using std::chrono::seconds;
  const auto of = [](const Environment& job, bool elastic) {
    const CommitGrace grace = commit_grace(job, elastic);
    return std::tuple<Duration, Duration, bool>(grace.when_asked, grace.when_lost,
                                                grace.keeps_state);
  };
  const auto is = [](seconds when_asked, seconds when_lost, bool keeps_state) {
    return std::tuple<Duration, Duration, bool>(when_asked, when_lost, keeps_state);
  };
  EXPECT_EQ(of({}, false), is(seconds(0), seconds(5), false));
  EXPECT_EQ(of({{"HOROVOD_GRACE_SECONDS", "3"}}, false), is(seconds(0), seconds(3), false));
  EXPECT_EQ(of({}, true), is(seconds(5), seconds(5), false));
  EXPECT_EQ(of({{"HOROVOD_STATE_DIR", "state"}}, false), is(seconds(5), seconds(5), true));
  EXPECT_EQ(of({{"HOROVOD_STATE_DIR", "state"}, {"HOROVOD_GRACE_SECONDS", "30"}}, true),
            is(seconds(30), seconds(30), true));
}

TEST(HostVariables, OnOneHostKeepTheInterfacesThatTheUserHasSet) {
  EXPECT_THAT(host_variables({{"NCCL_SOCKET_IFNAME", "ib0"}}, store_at(5)),
              Not(Contains(Key("NCCL_SOCKET_IFNAME"))));
  const Environment found = host_variables({}, store_at(5));
  EXPECT_THAT(found, Contains(Pair("NCCL_SOCKET_IFNAME", "lo")));
  EXPECT_THAT(found, Contains(Pair("HOROVOD_GLOO_IFACE", "lo")));
  EXPECT_THAT(found, Contains(Pair("HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.7")));
  EXPECT_THAT(found, Contains(Pair("HOROVOD_GLOO_RENDEZVOUS_PORT", "5")));
}

TEST(HostVariables, OnSeveralHostsNameTheProvedInterfaceToNcclAlone) {
  StoreAddress address = store_at(5);
  address.one_host = false;
  address.interface = "eth1";
  const Environment found = host_variables({}, address);
  EXPECT_THAT(found, Contains(Pair("NCCL_SOCKET_IFNAME", "eth1")));
  EXPECT_THAT(found, Not(Contains(Key("HOROVOD_GLOO_IFACE"))));
}

TEST(HostVariables, NameTheInterfacesOfTheFlagTheProvedOneFirst) {
  StoreAddress address = store_at(5);
  address.interfaces = {"eth0", "eth1"};
  const Environment user{{"HOROVOD_GLOO_IFACE", "lo"}};
  Environment found = host_variables(user, address);
  EXPECT_THAT(found, Contains(Pair("HOROVOD_GLOO_IFACE", "eth0")));
  EXPECT_THAT(found, Contains(Pair("NCCL_SOCKET_IFNAME", "eth0,eth1")));
  address.interface = "eth1";
  found = host_variables(user, address);
  EXPECT_THAT(found, Contains(Pair("HOROVOD_GLOO_IFACE", "eth1")));
}

TEST(HostfileOfOperator, IsFoundInThePodOfItsLauncherOnly) {
  EXPECT_EQ(hostfile_of_operator({{"K_MPI_JOB_ROLE", "launcher"}}), "/etc/mpi/hostfile");
  EXPECT_EQ(hostfile_of_operator({{"K_MPI_JOB_ROLE", "worker"}}), "");
  EXPECT_EQ(hostfile_of_operator({{"OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"}}),
            "/etc/mpi/hostfile");
  EXPECT_EQ(hostfile_of_operator({{"OMPI_MCA_plm_rsh_agent", "ssh"}}), "");
  EXPECT_EQ(hostfile_of_operator({}), "");
}

TEST(HostfileOfOperator, IsTheOneThatTheOperatorNames) {
  const std::pair<const std::string, std::string> named{"OMPI_MCA_orte_default_hostfile", "/hosts"};
  EXPECT_EQ(hostfile_of_operator({{"K_MPI_JOB_ROLE", "launcher"}, named}), "/hosts");
  EXPECT_EQ(hostfile_of_operator({named}), "") << "it may belong to the user's own mpirun";
}

TEST(RankVariables, AreThoseOfTheAssignment) {
  EXPECT_THAT(rank_variables("h", {0, 3, 8, 1, 2, 0, 4}),
              UnorderedElementsAre(Pair("HOROVOD_HOSTNAME", "h"), Pair("HOROVOD_RANK", "3"),
                                   Pair("HOROVOD_SIZE", "8"), Pair("HOROVOD_LOCAL_RANK", "1"),
                                   Pair("HOROVOD_LOCAL_SIZE", "2"), Pair("HOROVOD_CROSS_RANK", "0"),
                                   Pair("HOROVOD_CROSS_SIZE", "4"), Pair("RANK", "3"),
                                   Pair("WORLD_SIZE", "8"), Pair("LOCAL_RANK", "1"),
                                   Pair("LOCAL_WORLD_SIZE", "2")));
}

TEST(JobEnvironment, TellsOfVariablesThatItsRanksDoNotHeed) {
  EXPECT_TRUE(tell_of_unused({{"HOROVOD_RANK", "1"}, {"HOROVOD_SECRET_FILE", ""}}).empty());
  const auto lines = tell_of_unused({{"HOROVOD_SECRET_FILE", "/s"}, {"HOROVOD_NO_SECRET", "1"}});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].starts_with("HOROVOD_SECRET_FILE has no effect here")) << lines[0];
  EXPECT_EQ(lines[0].find("/s"), std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher

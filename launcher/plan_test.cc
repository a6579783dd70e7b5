#include "launcher/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using std::chrono_literals::operator""s;

/// A machine `box` with one interface, ssh, and every command. Counts the queries.
class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    machine.name = "box";
    machine.environment = {{"PATH", "/bin"}};
    machine.program = "/opt/horovodrun";
    machine.folder = "/work";
    machine.addresses = [this] {
      ++asked_for_addresses;
      return addresses;
    };
    machine.has_interface = [](const std::string& name) { return name == "eth0" || name == "lo"; };
    machine.free_port = [] { return uint16_t{23456}; };
    machine.read_file = [this](const std::string& path, const char* what) {
      if (!files.contains(path)) fail(Code::invalid_argument, std::string(what) + " " + path);
      return files.at(path);
    };
    machine.find_command = [](const std::vector<std::string>& command, const Environment&) {
      return FoundCommand{.program = "/bin/" + command.front(), .problem = {}};
    };
    machine.find_program = [this](const std::string& program) {
      return has_ssh && program == "ssh" ? "/usr/bin/ssh" : "";
    };
    machine.find_python = [](const std::string& path) { return path + "/python3"; };
  }

  Job plan(std::vector<std::string> arguments) const {
    arguments.emplace_back("train");
    return plan_job(parse_options(arguments), machine);
  }
  std::string refusal(const std::vector<std::string>& arguments) const {
    try {
      plan(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "accepted";
  }
  /// Returns `name:ranks` per host, with a `*` after those that are this machine.
  static std::vector<std::string> hosts_of(const Job& job) {
    std::vector<std::string> texts;
    for (const JobHost& host : job.hosts)
      texts.push_back(host.name + ":" + std::to_string(host.slots) + (host.local ? "*" : ""));
    return texts;
  }

  Machine machine;
  std::vector<InterfaceAddress> addresses{{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.1"}};
  std::map<std::string, std::string> files;
  bool has_ssh = true;
  mutable int asked_for_addresses = 0;
};

TEST_F(PlanTest, WithoutHostsAllRanksAreHereAndNothingIsAskedOfTheKernel) {
  has_ssh = false;
  const Job job = plan({"-np", "3"});
  EXPECT_THAT(hosts_of(job), ElementsAre("localhost:3*"));
  EXPECT_TRUE(job.is_local());
  EXPECT_EQ(job.starter, JobStarter::horovodrun);
  EXPECT_EQ(job.command.program, "/bin/train");
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.assignment.generation(), 0u);
  EXPECT_EQ(job.assignment.worker(2), (WorkerId{0, 2}));
  EXPECT_EQ(asked_for_addresses, 0);
}

TEST_F(PlanTest, AHostThatIsThisMachineByItsAddressNeedsNoSsh) {
  has_ssh = false;
  EXPECT_THAT(hosts_of(plan({"-np", "4", "-H", "box:2,10.0.0.1:2"})), ElementsAre("box:4*"));
  EXPECT_THAT(hosts_of(plan({"-np", "2", "-H", "localhost:4"})), ElementsAre("localhost:2*"));
}

TEST_F(PlanTest, OtherHostsAreReachedBySshFromTheFolderOfTheUser) {
  const Job job = plan({"-np", "3", "-H", "far:2,box:2", "-p", "2222", "-i", "key"});
  EXPECT_THAT(hosts_of(job), ElementsAre("far:2", "box:1*"));
  EXPECT_EQ(job.folder, "/work");
  EXPECT_THAT(job.addresses, ElementsAre("10.0.0.1"));
  EXPECT_EQ(job.ssh.program, "/usr/bin/ssh");
  EXPECT_EQ(job.ssh.agent, "/opt/horovodrun");
  EXPECT_EQ(job.ssh.port, 2222);
  EXPECT_EQ(job.ssh.identity, "key");
}

TEST_F(PlanTest, MissingSshOrAddressIsRefusedWithARemedy) {
  const std::vector<std::string> two_hosts{"-np", "2", "-H", "far:1,near:1"};
  has_ssh = false;
  EXPECT_THAT(refusal(two_hosts), HasSubstr("apt-get install openssh-client"));
  addresses = {{"lo", "127.0.0.1", true}};
  EXPECT_THAT(refusal(two_hosts), HasSubstr("no interface but loopback is up"));
}

TEST_F(PlanTest, InterfacesOfTheUserChooseTheAddresses) {
  addresses.push_back({"eth1", "10.1.0.1"});
  EXPECT_THAT(plan({"-np", "1", "-H", "far", "--network-interfaces", "eth0"}).addresses,
              ElementsAre("10.0.0.1"));
  EXPECT_THAT(plan({"-np", "1", "-H", "far", "--network-interfaces", "lo"}).addresses,
              ElementsAre("127.0.0.1"));
}

TEST_F(PlanTest, OneOfSeveralInterfacesMayBeUnknownHereWhenThereAreOtherHosts) {
  EXPECT_THAT(refusal({"-np", "1", "--network-interfaces", "eth0,ib0"}),
              HasSubstr("'ib0' does not exist here"));
  const std::vector<std::string> far{"-np", "1", "-H", "far", "--network-interfaces"};
  const auto with = [&](const char* names) {
    auto arguments = far;
    arguments.emplace_back(names);
    return refusal(arguments);
  };
  EXPECT_EQ(with("ib0,eth0"), "accepted");
  EXPECT_THAT(with("ib0,ib1"), HasSubstr("'ib1' does not exist here"));
}

TEST_F(PlanTest, AnAllocationOfLsfGivesTheHostsAndTheNumber) {
  machine.environment["LSB_JOBID"] = "7";
  machine.environment["LSB_MCPU_HOSTS"] = "batch 1 a 4 b 4";
  const Job job = plan({"--gloo"});
  EXPECT_EQ(job.options.num_proc, 8);
  EXPECT_THAT(hosts_of(job), ElementsAre("a:4", "b:4"));
  EXPECT_THAT(hosts_of(plan({"-np", "5"})), ElementsAre("a:4", "b:1"));
  EXPECT_THAT(hosts_of(plan({"-H", "c:2"})), ElementsAre("c:2"));
}

TEST_F(PlanTest, WithoutANumberAndWithoutLsfThereIsNoPlan) {
  EXPECT_THAT(refusal({"-H", "a:2"}), HasSubstr("-np is required"));
}

TEST_F(PlanTest, HostFilesAreThoseOfTheUserOrOfTheOperator) {
  files["mine"] = "a slots=2\nb slots=2\n";
  files["/etc/mpi/hostfile"] = "pod-0 slots=1\npod-1 slots=1\n";
  EXPECT_THAT(hosts_of(plan({"-np", "3", "--hostfile", "mine"})), ElementsAre("a:2", "b:1"));
  EXPECT_THAT(refusal({"-np", "3", "--hostfile", "other"}), "host file other");
  machine.environment["K_MPI_JOB_ROLE"] = "launcher";
  EXPECT_THAT(hosts_of(plan({"-np", "2"})), ElementsAre("pod-0:1", "pod-1:1"));
  EXPECT_THAT(hosts_of(plan({"-np", "2", "-H", "a:2"})), ElementsAre("a:2"));
}

TEST_F(PlanTest, PodsOfTheFirstOperatorAreReachedWithoutSshAndAllFromHere) {
  has_ssh = false;
  files["/etc/mpi/hostfile"] = "pod-0 slots=1\npod-1 slots=1\n";
  machine.environment["OMPI_MCA_plm_rsh_agent"] = "/etc/mpi/kubexec.sh";
  machine.environment["HOROVOD_AGENT_FAN_OUT"] = "1";
  const Job job = plan({"-np", "2"});
  EXPECT_EQ(job.ssh.kubexec, "/etc/mpi/kubexec.sh");
  EXPECT_EQ(job.fan_out, 2u);
}

TEST_F(PlanTest, ACommandThatCannotRunIsAProblemBeforeAnythingElse) {
  machine.find_command = [](const auto&, const Environment&) {
    return FoundCommand{.program = "", .problem = "no such program"};
  };
  const Job job = plan({"-np", "9", "-H", "far:2"});
  EXPECT_EQ(job.problem, "no such program");
  EXPECT_THAT(job.hosts, IsEmpty());
}

TEST_F(PlanTest, TimesAndBindingAreThoseOfFlagsAndVariables) {
  machine.environment["HOROVOD_START_TIMEOUT"] = "6";
  Job job = plan({"-np", "1", "-H", "far", "--grace-seconds", "3", "--binding-args", "none"});
  EXPECT_EQ(job.grace, 3s);
  EXPECT_EQ(job.start_timeout, 6s);
  EXPECT_EQ(job.ssh.connect_timeout_seconds, 3) << "an unreachable host is reported in time";
  EXPECT_EQ(job.binding, BindingWish::none);
  job = plan({"-np", "1", "-H", "far", "--start-timeout", "600"});
  EXPECT_EQ(job.ssh.connect_timeout_seconds, 10);
  EXPECT_EQ(job.binding, BindingWish::sensible);
}

TEST_F(PlanTest, TheStarterIsThatOfFlagOrVariable) {
  EXPECT_EQ(plan({"-np", "1", "--mpi"}).starter, JobStarter::mpirun);
  EXPECT_EQ(plan({"-np", "1", "--jsrun"}).starter, JobStarter::jsrun);
  machine.environment["HOROVOD_CONTROLLER"] = "mpi";
  EXPECT_EQ(plan({"-np", "1"}).starter, JobStarter::mpirun);
  EXPECT_EQ(plan({"-np", "1", "--gloo"}).starter, JobStarter::horovodrun);
}

TEST_F(PlanTest, AnotherLauncherIsToldTheHostsAsTheyWereWrittenAndNeedsNoSsh) {
  has_ssh = false;
  const Job job = plan({"-np", "3", "--mpi", "-H", "localhost:1,far:2,far:1,box:1"});
  EXPECT_THAT(job.listed_hosts, ElementsAre(Host{"localhost", 1}, Host{"far", 3}, Host{"box", 1}));
  EXPECT_THAT(job.addresses, IsEmpty());
}

TEST_F(PlanTest, RanksOfAnotherLauncherFindTheCallerAtItsAddresses) {
  const auto hosts = [&](const char* listed) {
    return plan({"-np", "1", "--mpi", "-H", listed, "--caller", "9", "--caller-key", "8"})
        .command.environment;
  };
  EXPECT_THAT(hosts("localhost"), Contains(Pair("HOROVOD_CALLER_HOSTS", "127.0.0.1")));
  EXPECT_THAT(hosts("far"), Contains(Pair("HOROVOD_CALLER_HOSTS", "10.0.0.1")));
  EXPECT_THAT(plan({"-np", "1", "--caller", "9", "--caller-key", "8"}).command.environment,
              Not(Contains(Key("HOROVOD_CALLER_HOSTS"))));
  EXPECT_THAT(refusal({"-np", "1", "--jsrun", "--caller", "9"}),
              HasSubstr("horovod.run does not support jsrun"));
}

TEST_F(PlanTest, RanksFindRankZeroByTheVariablesOfTorchDistributed) {
  const auto master = [&](const char* listed) {
    const Environment ranks = plan({"-np", "1", "-H", listed}).command.environment;
    return ranks.at("MASTER_ADDR") + ":" + ranks.at("MASTER_PORT");
  };
  EXPECT_EQ(master("localhost"), "127.0.0.1:23456");
  EXPECT_EQ(master("far"), "far:23456");
  const std::vector<std::string> mixed{"-np", "2", "-H", "localhost:1,far:1"};
  EXPECT_EQ(plan(mixed).command.environment.at("MASTER_ADDR"), "box");
  machine.environment["MASTER_ADDR"] = "10.0.0.9";
  machine.environment["MASTER_PORT"] = "29500";
  EXPECT_EQ(master("far"), "10.0.0.9:29500");
  machine.environment["MASTER_ADDR"] = "";
  EXPECT_EQ(master("far"), "far:29500");
}

TEST_F(PlanTest, RanksOfLaterGenerationsFindTheNewRankZero) {
  const std::vector<std::string> flags{"-np", "2", "--min-np", "1", "-H", "box:1,far:1"};
  const Job job = plan(flags);
  EXPECT_THAT(master_variables(job, {.host = 1}, 777),
              ElementsAre(Pair("MASTER_ADDR", "far"), Pair("MASTER_PORT", "777")));
  EXPECT_THAT(master_variables(job, {.host = 0}, 777),
              ElementsAre(Pair("MASTER_ADDR", "box"), Pair("MASTER_PORT", "777")));
  machine.environment["MASTER_PORT"] = "29500";
  EXPECT_THAT(master_variables(plan(flags), {.host = 1}, 777),
              ElementsAre(Pair("MASTER_ADDR", "far")))
      << "the port is the user's";
}

TEST_F(PlanTest, RanksDoNotLookForRankZeroOfAnOuterJob) {
  for (const char* outer : {"HOROVOD_RANK", "TORCHELASTIC_RUN_ID"}) {
    machine.environment = {{outer, "1"},
                           {"MASTER_ADDR", "10.0.0.9"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    const Environment ranks = plan({"-np", "1", "-H", "far"}).command.environment;
    EXPECT_EQ(ranks.at("MASTER_ADDR") + ":" + ranks.at("MASTER_PORT"), "far:23456") << outer;
    EXPECT_FALSE(ranks.contains("TORCHELASTIC_RUN_ID"));
    EXPECT_FALSE(ranks.contains("TORCHELASTIC_USE_AGENT_STORE"));
  }
}

TEST_F(PlanTest, MpiForTensorsNeedsRanksOfMpirun) {
  machine.environment["HOROVOD_CPU_OPERATIONS"] = "mpi";
  EXPECT_THAT(refusal({"-np", "1"}), HasSubstr("add --mpi"));
  EXPECT_EQ(refusal({"-np", "1", "--mpi"}), "accepted");
}

TEST_F(PlanTest, OptionsThatHaveNoEffectAreWarnedOfOnce) {
  machine.environment["HOROVOD_SECRET_FILE"] = "/secret";
  const std::vector<std::string> flags{"-np",        "1", "--max-np",       "1",
                                       "--mpi-args", "x", "--binding-args", "y z"};
  EXPECT_THAT(plan(flags).warnings,
              ElementsAre(HasSubstr("--max-np"), HasSubstr("HOROVOD_SECRET_FILE"),
                          HasSubstr("--mpi-args"), HasSubstr("--binding-args 'y z'")));
  auto with_mpi = flags;
  with_mpi.emplace_back("--mpi");
  EXPECT_THAT(plan(with_mpi).warnings, ElementsAre(HasSubstr("--max-np")));
}

TEST_F(PlanTest, AnElasticJobKeepsAllItsHosts) {
  const Job job = plan({"-np", "2", "--min-np", "1", "-H", "box:2,far:2", "--reset-limit", "7",
                        "--blacklist-cooldown-range", "5", "9", "--chaos", "kill=30s,seed=3"});
  ASSERT_TRUE(job.elastic);
  EXPECT_EQ(job.elastic->min, 1);
  EXPECT_EQ(job.elastic->target, 2);
  EXPECT_EQ(job.elastic->patience, 600s);
  EXPECT_EQ(job.elastic->reset_limit, 7);
  EXPECT_EQ(job.elastic->survivor, 30s);
  EXPECT_EQ(job.elastic->cooldown->low, 5s);
  EXPECT_EQ(job.elastic->cooldown->high, 9s);
  EXPECT_EQ(job.elastic->kill_every, 30s);
  EXPECT_EQ(job.elastic->seed, 3u);
  EXPECT_FALSE(job.elastic->discovers);
  EXPECT_EQ(job.hosts.size(), 2u);
  EXPECT_EQ(job.hosts[1].slots, 2);
  EXPECT_EQ(job.assignment.size(), 2);
  EXPECT_EQ(job.command.environment.at("HOROVOD_ELASTIC"), "1");
  EXPECT_EQ(plan({"-np", "2", "--min-np", "1", "--max-np", "3"}).elastic->target, 3);
  EXPECT_FALSE(plan({"-np", "2"}).elastic);
}

TEST_F(PlanTest, OnlyOurOwnLauncherIsElastic) {
  EXPECT_THAT(refusal({"-np", "2", "--min-np", "1", "--mpi"}), HasSubstr("leave out --mpi"));
}

TEST_F(PlanTest, ChaosIsForElasticJobs) {
  EXPECT_THAT(refusal({"-np", "2", "--chaos", "kill=30s"}), HasSubstr("add --min-np or"));
}

TEST_F(PlanTest, AJobOfHorovodRunMayBeElastic) {
  const Job job = plan({"-np", "2", "--min-np", "1", "--caller-key", "9"});
  EXPECT_TRUE(job.elastic);
  EXPECT_THAT(job.warnings, IsEmpty());
}

TEST_F(PlanTest, DiscoveredHostsAreUsedUpToTheNumberOfProcesses) {
  machine.find_program = [](const std::string& program) { return "/bin/" + program; };
  Options options = parse_options({"-np", "3", "--min-np", "1", "--host-discovery-script", "hosts",
                                   "--slots-per-host", "5", "train"});
  options.discovered = {{"localhost", 2}};
  const Job job = plan_job(options, machine);
  EXPECT_EQ(job.assignment.size(), 2);
  EXPECT_EQ(job.elastic->target, std::numeric_limits<int>::max());
  EXPECT_TRUE(job.elastic->discovers);
  EXPECT_EQ(job.discovery->program, "/bin/hosts");
  EXPECT_EQ(job.discovery->slots_per_host, 5);
  EXPECT_TRUE(job.may_grow);
  EXPECT_FALSE(job.is_local()) << "workers on other hosts may come";
  addresses = {};
  EXPECT_TRUE(plan_job(options, machine).is_local()) << "no other host can reach this machine";
}

TEST_F(PlanTest, TheDiscoveryScriptMustExist) {
  EXPECT_THAT(refusal({"-np", "1", "--host-discovery-script", "hosts"}),
              HasSubstr("write ./hosts for a program in the working folder"));
}

TEST_F(PlanTest, TheDoctorExaminesTheListedHosts) {
  const DoctorPlan plan =
      plan_doctor(parse_options({"--doctor", "-H", "far:2,box:4,10.0.0.1:1"}), machine);
  EXPECT_EQ(plan.program, "/opt/horovodrun");
  EXPECT_EQ(plan.python, "/bin/python3");
  ASSERT_EQ(plan.hosts.size(), 2u);
  EXPECT_EQ(plan.hosts[0].name, "far");
  EXPECT_FALSE(plan.hosts[0].local);
  EXPECT_EQ(plan.hosts[1].slots, 5);
  EXPECT_TRUE(plan.hosts[1].local);
}

}  // namespace
}  // namespace hvd::launcher

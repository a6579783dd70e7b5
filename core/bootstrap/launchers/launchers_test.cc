#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "core/base/error.h"
#include "core/bootstrap/identity.h"
#include "core/bootstrap/identity_testing.h"
#include "core/transport/file_descriptor.h"

namespace hvd {
namespace {

using test::error_of;

Environment under_open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "1234"},
          {"PMIX_SERVER_URI2", "1234.0;tcp4://127.0.0.1:9"},
          {"PMIX_RANK", "1"}};
}

Environment under_torchrun() {
  return {{"RANK", "3"},           {"WORLD_SIZE", "4"},       {"LOCAL_RANK", "1"},
          {"GROUP_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"},
          {"MASTER_PORT", "29500"}};
}

Environment under_srun() {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURMD_NODENAME", "n5"},
          {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
          {"SLURM_STEP_NODELIST", "n[4-5]"}};
}

TEST(Launchers, OpenMpisLocalRankIsTakenAndNotComputed) {
  const Identity identity = identity_from(under_open_mpi());
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 4);
  EXPECT_EQ(identity.local_rank, 2);
  EXPECT_TRUE(identity.local_known);
  EXPECT_FALSE(identity.cross_known);
  EXPECT_EQ(identity.rendezvous, RendezvousMethod::local);
}

TEST(Launchers, OpenMpiOnSeveralHostsUsesPmix) {
  Environment environment = under_open_mpi();
  environment["OMPI_COMM_WORLD_SIZE"] = "8";
  environment["PMIX_HOSTNAME"] = "node3";
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::pmix);
  EXPECT_EQ(identity_from(environment).hostname, "node3");
}

TEST(Launchers, TwoJobsOfOneMachineHaveDifferentNames) {
  Environment other = under_open_mpi();
  other["PMIX_SERVER_URI2"] = "1234.0;tcp4://127.0.0.1:10";
  EXPECT_NE(identity_from(other).job_name, identity_from(under_open_mpi()).job_name);
  other = under_torchrun();
  other["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(identity_from(other).job_name, identity_from(under_torchrun()).job_name);
}

TEST(Launchers, HalfOfAPairNamesBoth) {
  const std::vector<std::array<const char*, 2>> pairs{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
  };
  for (const auto& pair : pairs) {
    for (const int found : {0, 1}) {
      EXPECT_EQ(error_of({{pair[found], "1"}}), std::string(pair[found]) + " is set but " +
                                                    pair[1 - found] +
                                                    " is not; set both or neither");
    }
  }
}

TEST(Launchers, PlainNamesAloneMeanNothing) {
  EXPECT_EQ(identity_from({{"RANK", "3"}}).size, 1);
  EXPECT_EQ(identity_from({{"RANK", "3"}, {"WORLD_SIZE", "4"}}).size, 1);
  Environment half = under_torchrun();
  half.erase("WORLD_SIZE");
  EXPECT_EQ(error_of(half), "RANK is set but WORLD_SIZE is not; set both or neither");
}

TEST(Launchers, TorchrunsAgentsAreHostsOfTheirOwn) {
  const Identity identity = identity_from(under_torchrun());
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.rendezvous, RendezvousMethod::caller);
  EXPECT_TRUE(identity.hostname.ends_with("/group1"));
  Environment one_host = under_torchrun();
  one_host["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(identity_from(one_host).rendezvous, RendezvousMethod::local);
}

TEST(Launchers, ATaskOfSrunKnowsItsLocalRank) {
  const Identity identity = identity_from(under_srun());
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.size, 4);
  EXPECT_EQ(identity.local_rank, 0);
  EXPECT_EQ(identity.local_size, 1);
  EXPECT_EQ(identity.hostname, "n5");
  EXPECT_EQ(identity.rendezvous, RendezvousMethod::address);
  EXPECT_EQ(identity.store_host, "n4");
  EXPECT_GE(identity.store_port, 20000);
  EXPECT_LT(identity.store_port, 32000);
  Environment with_pmix = under_srun();
  with_pmix["PMIX_NAMESPACE"] = "slurm.pmix.7.2";
  EXPECT_EQ(identity_from(with_pmix).rendezvous, RendezvousMethod::pmix);
  Environment one_node = under_srun();
  one_node["SLURM_STEP_TASKS_PER_NODE"] = "4";
  one_node["SLURM_NODEID"] = "0";
  EXPECT_EQ(identity_from(one_node).rendezvous, RendezvousMethod::local);
}

TEST(Launchers, ABatchScriptIsNoRank) {
  Environment script = under_srun();
  script.erase("SLURM_STEP_ID");
  EXPECT_EQ(identity_from(script).size, 1);
}

TEST(Launchers, PmiCountsOnlyWithItsConnection) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  FileDescriptor ours(pair[0]), theirs(pair[1]);
  Environment environment{{"PMI_FD", std::to_string(pair[0])},
                          {"PMI_RANK", "2"},
                          {"PMI_SIZE", "4"},
                          {"MPI_LOCALRANKID", "0"},
                          {"MPI_LOCALNRANKS", "2"}};
  const Identity identity = identity_from(environment);
  EXPECT_EQ(identity.rendezvous, RendezvousMethod::pmi);
  EXPECT_EQ(identity.pmi_fd, pair[0]);
  EXPECT_EQ(identity.local_size, 2);
  ours.reset();
  EXPECT_NE(error_of(environment).find("is closed"), std::string::npos);
  environment.merge(under_torchrun());  // whose agent was started by mpirun, and is asked then
  EXPECT_EQ(identity_from(environment).launcher, "torchrun");
}

TEST(Launchers, JsrunIsKnownByItsOwnNamesToo) {
  Environment environment{{"JSM_NAMESPACE_RANK", "1"},
                          {"JSM_NAMESPACE_SIZE", "2"},
                          {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                          {"JSM_NAMESPACE_LOCAL_SIZE", "2"}};
  EXPECT_EQ(identity_from(environment).launcher, "jsrun");
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::local);
  environment["JSM_NAMESPACE_SIZE"] = "4";
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::pmix);
}

TEST(Launchers, HorovodrunBelowAnotherOneIsHorovodrun) {
  Environment environment = under_open_mpi();
  environment.merge(Environment{{"HOROVOD_RANK", "0"},
                                {"HOROVOD_SIZE", "2"},
                                {"HOROVOD_KEY_SOCKET", "horovod-keeper-1"},
                                {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                                {"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}});
  EXPECT_EQ(identity_from(environment).size, 2);
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::launcher);
}

TEST(Launchers, ByHandTheAddressDecidesWhetherASecretIsNeeded) {
  Environment environment{{"HOROVOD_RANK", "0"},
                          {"HOROVOD_SIZE", "2"},
                          {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                          {"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}};
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::local);
  environment["HOROVOD_SECRET_FILE"] = "/x";
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::address);
  environment.erase("HOROVOD_SECRET_FILE");
  environment["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "node1";
  EXPECT_EQ(identity_from(environment).rendezvous, RendezvousMethod::address);
}

TEST(Launchers, APartOfAJobHasNumbersOfItsOwn) {
  Identity whole;
  whole.rank = 5;
  whole.size = 8;
  const Identity part = part_of(whole, {7, 2, 5});
  EXPECT_EQ(part.rank, 1);
  EXPECT_EQ(part.size, 3);
  EXPECT_EQ(part.launcher_rank(2), 7);
  EXPECT_FALSE(part.local_known);
  EXPECT_EQ(part_of(whole, {0, 1, 2, 3, 4, 5, 6, 7}).launcher_rank(6), 6);
  for (const std::vector<int>& wrong : {std::vector{0, 1}, {5, 5}, {5, 8}, {-1, 5}, {}})
    EXPECT_THROW(part_of(whole, wrong), Error);
}

}  // namespace
}  // namespace hvd

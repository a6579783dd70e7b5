#include "core/backend/mpi/plugin_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"

namespace hvd::mpi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const Environment& environment) {
  try {
    load_plugin(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(PluginLoader, TakesTheMpiWhoseMpirunStartedTheRanks) {
  const Choice open = choose_mpi({{"OMPI_COMM_WORLD_SIZE", "2"}}, {});
  EXPECT_EQ(open.kind, Kind::open_mpi);
  EXPECT_THAT(open.libraries, ElementsAre("libmpi.so.40"));
  const Choice mpich = choose_mpi({{"PMI_SIZE", "2"}}, {});
  EXPECT_EQ(mpich.kind, Kind::mpich);
  EXPECT_THAT(mpich.libraries, ElementsAre("libmpi.so.12", "libmpich.so.12"));
  EXPECT_EQ(choose_mpi({{"PMIX_RANK", "0"}}, {}).kind, Kind::open_mpi);
}

TEST(PluginLoader, LooksBesideTheLauncherFirst) {
  const auto prefix = std::filesystem::path(::testing::TempDir()) / "mpi";
  std::filesystem::create_directories(prefix / "lib");
  std::ofstream(prefix / "lib" / "libmpi.so.12") << "";
  const Choice choice =
      choose_mpi({{"PMI_SIZE", "2"}}, {"/bin/sh", "", prefix / "bin" / "hydra_pmi_proxy"});
  EXPECT_THAT(choice.libraries, ElementsAre((prefix / "lib" / "libmpi.so.12").string(),
                                            "libmpi.so.12", "libmpich.so.12"));
  const Choice open =
      choose_mpi({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_LIBDIR_LOC", "/opt/lib"}}, {});
  EXPECT_THAT(open.libraries, ElementsAre("/opt/lib/libmpi.so.40", "libmpi.so.40"));
}

TEST(PluginLoader, SaysWhatToDoWhereNoMpirunHasStartedTheRanks) {
  const std::string text = refusal({});
  EXPECT_THAT(text, HasSubstr("HOROVOD_CPU_OPERATIONS=mpi needs ranks that mpirun has started"));
  EXPECT_THAT(text, HasSubstr("horovodrun --mpi, or unset the variable"));
}

TEST(PluginLoader, NamesTheFileThatIsMissing) {
  const std::string text = refusal({{"PMI_SIZE", "2"}});  // the test directory has no plugin
  EXPECT_THAT(text, HasSubstr("/libhorovod_mpi_mpich.so does not exist"));
  EXPECT_THAT(text, HasSubstr("apt-get install libmpich-dev"));
}

}  // namespace
}  // namespace hvd::mpi

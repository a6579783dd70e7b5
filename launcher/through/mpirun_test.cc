#include "launcher/through/mpirun.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;
using FlavourKind = MpiFlavour::Kind;

constexpr MpiFlavour kOpenMpi4{FlavourKind::open_mpi, 4};
constexpr MpiFlavour kOpenMpi5{FlavourKind::open_mpi, 5};
constexpr MpiFlavour kSpectrum{FlavourKind::spectrum, 0};
constexpr MpiFlavour kMpich{FlavourKind::mpich, 0};
constexpr MpiFlavour kIntel{FlavourKind::intel, 0};
constexpr MpiFlavour kAll[] = {kOpenMpi4, kOpenMpi5, kSpectrum, kMpich, kIntel};

Options options_for(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{"-np", "4"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"train", "a b"});
  return parse_options(arguments);
}

const std::vector<Host> kHosts{{"h1", 2}, {"h2", 2}};

ForeignLauncher launcher(const MpiFlavour& flavour, const std::vector<std::string>& flags = {},
                         const std::vector<Host>& hosts = kHosts,
                         const Environment& job = {{"B", "secret"}}) {
  return through_mpirun(flavour, options_for(flags), hosts, job);
}

/// One line, words separated by '|'.
std::string line(const MpiFlavour& flavour, const std::vector<std::string>& flags = {},
                 const std::vector<Host>& hosts = kHosts,
                 const Environment& job = {{"B", "secret"}}) {
  return fmt::format("{}", fmt::join(launcher(flavour, flags, hosts, job).arguments, "|"));
}

std::string refusal(const MpiFlavour& flavour, const std::vector<std::string>& flags,
                    const std::vector<Host>& hosts = kHosts) {
  try {
    launcher(flavour, flags, hosts);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Flavour, IsFoundInWhatVersionSays) {
  EXPECT_EQ(flavour_of("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to"), kOpenMpi4);
  EXPECT_EQ(flavour_of("mpirun (Open MPI) 5.0.11\n"), kOpenMpi5);
  EXPECT_EQ(flavour_of("Open MPI without a number"), (MpiFlavour{FlavourKind::open_mpi, 0}));
  EXPECT_EQ(flavour_of("mpirun (IBM Spectrum MPI) 10.3.0.0"), kSpectrum);
  EXPECT_EQ(flavour_of("HYDRA build details:\n    Version:   4.0.2\n"), kMpich);
  EXPECT_EQ(flavour_of("MPICH Version: 3.4"), kMpich);
  EXPECT_EQ(flavour_of("Intel(R) MPI Library for Linux* OS, Version 2021.18.1"), kIntel);
  EXPECT_EQ(flavour_of("mpirun: command not known"), std::nullopt);
  EXPECT_EQ(flavour_of(""), std::nullopt);
}

TEST(Mpirun, OfOpenMpi4GetsItAll) {
  EXPECT_EQ(line(kOpenMpi4),
            "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|h1:2,h2:2|--bind-to|none|--map-by|"
            "slot|--mca|pml|ob1|--mca|btl|^openib|-x|B|train|a b");
}

TEST(Mpirun, OfOpenMpi5HasOtherNamesForOutput) {
  EXPECT_THAT(line(kOpenMpi5), StartsWith("mpirun|--allow-run-as-root|--output|tag|-np|4|"));
  EXPECT_THAT(line(kOpenMpi5, {"-prefix-timestamp"}), HasSubstr("|--output|tag,timestamp|"));
  const auto files = launcher(kOpenMpi5, {"--output-filename", "out"});
  EXPECT_THAT(files.folders, ElementsAre("out"));
  EXPECT_THAT(line(kOpenMpi5, {"--output-filename", "out"}),
              HasSubstr("|--output-filename|out/rank|"));
}

TEST(Mpirun, OfOpenMpi4MakesItsFoldersItself) {
  EXPECT_THAT(launcher(kOpenMpi4, {"--output-filename", "out"}).folders, IsEmpty());
  EXPECT_THAT(line(kOpenMpi4, {"--output-filename", "out", "-prefix-timestamp"}),
              AllOf(HasSubstr("|--output-filename|out|"), HasSubstr("|--timestamp-output|")));
}

TEST(Mpirun, OfSpectrumBindsToSockets) {
  EXPECT_EQ(line(kSpectrum),
            "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|h1:2,h2:2|-bind-to|socket|-map-by|"
            "socket|-rank-by|core|-x|B|train|a b");
  EXPECT_THAT(line(kSpectrum, {"--tcp"}), HasSubstr("|-tcp|"));
  EXPECT_THAT(line(kOpenMpi4, {"--tcp"}), Not(HasSubstr("|-tcp|")));
}

TEST(Mpirun, OfMpichAndIntelIsThatOfHydra) {
  EXPECT_EQ(line(kMpich), "mpirun|-l|-np|4|-ppn|2|-hosts|h1,h2|-genvlist|B|train|a b");
  EXPECT_EQ(line(kIntel), line(kMpich));
}

TEST(Mpirun, NeverShowsAValue) {
  for (const MpiFlavour& flavour : kAll) EXPECT_THAT(line(flavour), Not(HasSubstr("secret")));
}

TEST(Mpirun, ExportsWhatHasAPlainName) {
  const Environment job{{"A_1", ""}, {"a.b", ""}, {"c%%", ""}, {"D,E", ""}, {"_", ""}};
  EXPECT_THAT(line(kOpenMpi4, {}, kHosts, job), EndsWith("|-x|A_1|train|a b"));
  EXPECT_THAT(line(kMpich, {}, kHosts, job), EndsWith("|-genvlist|A_1|train|a b"));
}

TEST(Mpirun, TakesTheUsersBindingInPlaceOfItsOwn) {
  for (const MpiFlavour& flavour : kAll) {
    const std::string words = line(flavour, {"--binding-args", "-x y"});
    EXPECT_THAT(words,
                AllOf(HasSubstr("|-x|y|"), Not(HasSubstr("bind-to")), Not(HasSubstr("map-by"))));
  }
}

TEST(Mpirun, TakesTheUsersArgumentsBeforeTheCommand) {
  for (const MpiFlavour& flavour : kAll)
    EXPECT_THAT(line(flavour, {"--mpi-args", "--last 'of all'"}),
                EndsWith("|--last|of all|train|a b"));
}

TEST(Mpirun, HandsPortAndKeyOnToSsh) {
  const std::vector<std::string> flags{"-p", "2222", "-i", "key"};
  EXPECT_THAT(line(kOpenMpi4, flags), HasSubstr("|--mca|plm_rsh_args|-p 2222 -i key|"));
  EXPECT_THAT(line(kSpectrum, flags), HasSubstr("|--mca|plm_rsh_args|-p 2222 -i key|"));
  EXPECT_THAT(line(kOpenMpi5, flags), HasSubstr("|--prtemca|plm_ssh_args|-p 2222 -i key|"));
  EXPECT_THAT(
      launcher(kMpich, flags).environment,
      ElementsAre(Pair("B", "secret"), Pair("HYDRA_LAUNCHER_EXTRA_ARGS", "-p 2222 -i key")));
  EXPECT_THAT(launcher(kIntel, flags).environment,
              ElementsAre(Pair("B", "secret"),
                          Pair("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "-p 2222 -i key")));
  for (const MpiFlavour& flavour : kAll)
    EXPECT_THAT(refusal(flavour, {"-i", "my key"}), HasSubstr("'my key'"));
}

TEST(Mpirun, UsesTheInterfacesThatAreNamed) {
  const std::vector<std::string> two{"--network-interfaces", "a,b"};
  EXPECT_THAT(line(kOpenMpi4, two),
              HasSubstr("|--mca|btl_tcp_if_include|a,b|--mca|oob_tcp_if_include|a,b|"));
  EXPECT_THAT(line(kOpenMpi5, two), HasSubstr("|--mca|btl_tcp_if_include|a,b|-x|"));
  EXPECT_THAT(line(kMpich, {"--network-interfaces", "a"}), HasSubstr("|-iface|a|"));
  EXPECT_THAT(refusal(kMpich, two),
              HasSubstr("MPICH uses only one network interface, and 2 were named: a,b"));
  EXPECT_THAT(refusal(kIntel, two), HasSubstr("Intel MPI uses only one"));
}

TEST(Mpirun, OfMpichNeedsEqualSlots) {
  const std::vector<Host> uneven{{"h1", 2}, {"h2", 3}};
  EXPECT_THAT(refusal(kMpich, {}, uneven),
              HasSubstr("MPICH needs equal slots on every host: h1 has 2, h2 has 3"));
  EXPECT_THAT(refusal(kIntel, {}, uneven), HasSubstr("Intel MPI needs equal slots"));
  EXPECT_EQ(refusal(kOpenMpi4, {}, uneven), "accepted");
}

TEST(Mpirun, KnowsOnlyTheHostsThatHaveRanks) {
  EXPECT_THAT(line(kMpich, {}, {{"h1", 2}, {"h2", 2}, {"h3", 7}}), HasSubstr("|-hosts|h1,h2|"));
  EXPECT_THAT(line(kOpenMpi4, {}, {{"h1", 8}, {"h2", 2}}), HasSubstr("|-H|h1:8|"));
  EXPECT_THAT(refusal(kOpenMpi4, {}, {{"h1", 3}}),
              HasSubstr("more processes than there are slots"));
  EXPECT_THAT(refusal(kMpich, {}, {{"fd00::1", 4}}),
              HasSubstr("fd00::1: mpirun does not support IPv6"));
}

TEST(Mpirun, ReachesManyHostsAtOnce) {
  std::vector<Host> hosts;
  for (int i = 0; i < 64; ++i) hosts.push_back({fmt::format("h{}", i), 1});
  EXPECT_THAT(line(kOpenMpi4, {"-np", "64"}, hosts),
              HasSubstr("|--mca|plm_rsh_no_tree_spawn|true|--mca|plm_rsh_num_concurrent|64|"));
  EXPECT_THAT(
      line(kOpenMpi5, {"-np", "64"}, hosts),
      HasSubstr("|--prtemca|plm_ssh_no_tree_spawn|true|--prtemca|plm_ssh_num_concurrent|64|"));
  EXPECT_THAT(line(kOpenMpi4, {"-np", "63"}, hosts), Not(HasSubstr("tree_spawn")));
}

TEST(Mpirun, OfMpichWritesAFileForEachRankAndNoTimes) {
  const auto result = launcher(kMpich, {"--output-filename", "out", "-prefix-timestamp"});
  EXPECT_THAT(result.folders, ElementsAre("out/rank.0", "out/rank.1", "out/rank.2", "out/rank.3"));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("MPICH cannot print times")));
  EXPECT_THAT(
      line(kMpich, {"--output-filename", "out"}),
      HasSubstr("|-outfile-pattern|out/rank.%r/stdout|-errfile-pattern|out/rank.%r/stderr|"));
}

}  // namespace
}  // namespace hvd::launcher

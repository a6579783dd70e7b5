#include "launcher/through/jsrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Host> allocation(const char* name, const char* value) {
  return lsf_allocation({{"LSB_JOBID", "7"}, {name, value}});
}

std::string refusal(const std::vector<Host>& filled, const std::vector<Host>& allocation) {
  try {
    rank_file(filled, allocation);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Lsf, IsThereWhereAJobHasANumber) {
  EXPECT_TRUE(is_in_lsf({{"LSB_JOBID", "7"}}));
  EXPECT_FALSE(is_in_lsf({{"LSB_JOBID", ""}}));
  EXPECT_FALSE(is_in_lsf({{"LSB_MCPU_HOSTS", "a 2"}}));
  EXPECT_THAT(lsf_allocation({{"LSB_MCPU_HOSTS", "a 2"}}), IsEmpty());
  EXPECT_THAT(lsf_allocation({{"LSB_JOBID", "7"}}), IsEmpty());
}

TEST(Lsf, NamesHostsAndSlots) {
  EXPECT_THAT(allocation("LSB_MCPU_HOSTS", "a 2 b 40"), ElementsAre(Host{"a", 2}, Host{"b", 40}));
  EXPECT_THAT(allocation("LSB_MCPU_HOSTS", "a 2 b 3 a 1"), ElementsAre(Host{"a", 3}, Host{"b", 3}));
  EXPECT_THAT(allocation("LSB_HOSTS", "a a b b b"), ElementsAre(Host{"a", 2}, Host{"b", 3}));
  EXPECT_THAT(lsf_allocation({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 2"}, {"LSB_HOSTS", "b"}}),
              ElementsAre(Host{"a", 2}));
}

TEST(Lsf, TheNodeOfTheBatchScriptComputesNothing) {
  EXPECT_THAT(allocation("LSB_MCPU_HOSTS", "batch 1 a 4 b 4"),
              ElementsAre(Host{"a", 4}, Host{"b", 4}));
  EXPECT_THAT(allocation("LSB_HOSTS", "batch a a"), ElementsAre(Host{"a", 2}));
  EXPECT_THAT(allocation("LSB_MCPU_HOSTS", "a 1"), ElementsAre(Host{"a", 1}));
  EXPECT_THAT(allocation("LSB_MCPU_HOSTS", "a 1 b 1"), ElementsAre(Host{"a", 1}, Host{"b", 1}));
}

TEST(Lsf, SaysWhatItCannotRead) {
  EXPECT_THROW(allocation("LSB_MCPU_HOSTS", "a"), Error);
  EXPECT_THROW(allocation("LSB_MCPU_HOSTS", "a 2 b x"), Error);
  EXPECT_THROW(allocation("LSB_MCPU_HOSTS", "a -1"), Error);
}

TEST(RankFile, GivesEachRankCoresOfItsOwn) {
  const std::vector<Host> hosts{{"a", 5}, {"b", 4}};
  EXPECT_EQ(rank_file({{"a", 2}, {"b", 1}}, hosts),
            "overlapping_rs: allow\n"
            "cpu_index_using: logical\n"
            "rank: 0: { hostname: a; cpu: {0-1} ; gpu: * ; mem: * }\n"
            "rank: 1: { hostname: a; cpu: {2-3} ; gpu: * ; mem: * }\n"
            "rank: 2: { hostname: b; cpu: {0-3} ; gpu: * ; mem: * }\n");
}

TEST(RankFile, SharesCoresWhereThereAreTooFew) {
  const std::string text = rank_file({{"a", 3}}, {{"a", 2}});
  EXPECT_THAT(text, HasSubstr("rank: 1: { hostname: a; cpu: {1} ;"));
  EXPECT_THAT(text, HasSubstr("rank: 2: { hostname: a; cpu: {0} ;"));
}

TEST(RankFile, HasNoHostsOfOthers) {
  EXPECT_THAT(refusal({{"c", 1}}, {{"a", 2}, {"b", 2}}),
              HasSubstr("host c is not in the allocation of this LSF job, which has a, b"));
}

Options options_for(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"-np", "2", "train", "x y"});
  return parse_options(flags);
}

TEST(Jsrun, GetsARankFileOrTheUsersBinding) {
  EXPECT_THAT(through_jsrun(options_for({}), "file", {}).arguments,
              ElementsAre("jsrun", "--erf_input", "file", "train", "x y"));
  EXPECT_THAT(through_jsrun(options_for({"--binding-args", "-n 2 -c 4"}), "", {}).arguments,
              ElementsAre("jsrun", "-n", "2", "-c", "4", "train", "x y"));
}

TEST(Jsrun, WritesFilesAndTakesFurtherArguments) {
  const auto result = through_jsrun(
      options_for({"--output-filename", "out", "--mpi-args", "-d packed", "-prefix-timestamp"}),
      "file", {});
  EXPECT_THAT(result.arguments,
              ElementsAre("jsrun", "--erf_input", "file", "--stdio_stdout", "out", "--stdio_stderr",
                          "out", "-d", "packed", "train", "x y"));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("jsrun cannot print times")));
}

}  // namespace
}  // namespace hvd::launcher

#include "core/bootstrap/launchers/slurm_variables.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/base/error.h"

namespace hvd {
namespace {

TEST(SlurmVariables, CountsAreWrittenOutNodeByNode) {
  EXPECT_EQ(expand_counts("V", "4"), (std::vector{4}));
  EXPECT_EQ(expand_counts("V", "3,1"), (std::vector{3, 1}));
  EXPECT_EQ(expand_counts("V", "2(x3),1,5(x2)"), (std::vector{2, 2, 2, 1, 5, 5}));
}

TEST(SlurmVariables, WhatIsNoListOfCountsIsRefusedByName) {
  for (const char* text : {"", "x", "3,", "3(x", "3(x2", "3(y2)", "0", "-1", "3(x0)", "3 1",
                           "1(x99999999)", "1(x9999999),1(x9999999)"}) {
    try {
      expand_counts("SLURM_X", text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("SLURM_X="), std::string::npos);
    }
  }
}

TEST(SlurmVariables, TheFirstNodeOfAListKeepsItsZeros) {
  EXPECT_EQ(first_of_node_list("V", "n1"), "n1");
  EXPECT_EQ(first_of_node_list("V", "n1,n2"), "n1");
  EXPECT_EQ(first_of_node_list("V", "n[1-3]"), "n1");
  EXPECT_EQ(first_of_node_list("V", "rack2-n[008-012,20],m[1-2]"), "rack2-n008");
  EXPECT_EQ(first_of_node_list("V", "n[7]-ib,m1"), "n7-ib");
  EXPECT_EQ(first_of_node_list("V", "a,n[1-2]"), "a");
}

TEST(SlurmVariables, AListWithoutNodesIsRefused) {
  for (const char* text : {"", ",", "n[", "n[1", "n[1-2"})
    EXPECT_THROW(first_of_node_list("V", text), Error) << text;
}

std::optional<RankAndSize> local_rank_of(const std::string& node, const std::string& local) {
  return slurm_local_rank(
      {{"SLURM_STEP_TASKS_PER_NODE", "3,1(x2)"}, {"SLURM_NODEID", node}, {"SLURM_LOCALID", local}});
}

TEST(SlurmVariables, TheLocalSizeIsThatOfTheNode) {
  const auto local = local_rank_of("0", "2");
  ASSERT_TRUE(local);
  EXPECT_EQ(local->rank, 2);
  EXPECT_EQ(local->size, 3);
  EXPECT_EQ(local_rank_of("2", "0")->size, 1);
  EXPECT_THROW(local_rank_of("2", "1"), Error);
  EXPECT_THROW(local_rank_of("3", "0"), Error);
  EXPECT_FALSE(local_rank_of("", "0"));
}

}  // namespace
}  // namespace hvd

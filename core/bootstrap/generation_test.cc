#include "core/bootstrap/generation.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "core/transport/job_number.h"

namespace hvd {
namespace {

TEST(Generation, IsWhatTheLauncherAssignsWhateverThisProcessCounts) {
  EXPECT_EQ(generation_of(7, 1), 7u);
  EXPECT_EQ(generation_of(2, 5), 2u);
}

TEST(Generation, IsTheNumberOfInitsIfNobodyAssignsIt) {
  EXPECT_EQ(generation_of(std::nullopt, 1), 1u);
  EXPECT_EQ(generation_of(std::nullopt, 3), 3u);
}

TEST(Generation, ZeroCannotBeAssigned) {
  try {
    generation_of(0, 1);
    FAIL() << "the Store's own generation";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
  }
}

TEST(Generation, HasNamesOfItsOwn) {
  std::set<std::string> names;
  for (const uint32_t generation : {1u, 2u, 11u}) {
    EXPECT_TRUE(names.insert(store_key(generation, "card/1")).second);
    EXPECT_EQ(job_of_key(store_key(generation, "card/1")), generation);
    for (const std::vector<int>& members :
         {std::vector<int>{}, {0}, {1}, {0, 1}, {0, 1, 2}, {12}, {1, 2}})
      EXPECT_TRUE(names.insert(rendezvous_name(generation, members)).second);
  }
  EXPECT_EQ(rendezvous_name(3, {}), "horovod-3-all");
  EXPECT_EQ(store_key(3, "table"), "start/3/table");
  for (const char* other : {"", "start/", "start/3", "start/x/table", "ended/3/1"})
    EXPECT_FALSE(job_of_key(other)) << other;
}

}  // namespace
}  // namespace hvd

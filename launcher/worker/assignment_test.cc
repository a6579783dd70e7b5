#include "launcher/worker/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;

std::vector<RankAssignment> ranks_of(const Assignment& assignment) {
  std::vector<RankAssignment> ranks;
  for (const AssignedWorker& worker : assignment.workers()) ranks.push_back(worker.ranks);
  return ranks;
}

std::vector<WorkerId> ids_of(const Assignment& assignment) {
  std::vector<WorkerId> ids;
  for (const AssignedWorker& worker : assignment.workers()) ids.push_back(worker.id);
  return ids;
}

TEST(Assignment, FillsOneHostInTheOrderOfItsSlots) {
  const Assignment assignment = assign_ranks({{0, 1}, {0, 0}}, 0);
  EXPECT_THAT(ids_of(assignment), ElementsAre(WorkerId{0, 0}, WorkerId{0, 1}));
  EXPECT_THAT(ranks_of(assignment), ElementsAre(RankAssignment{0, 0, 2, 0, 2, 0, 1},
                                                RankAssignment{0, 1, 2, 1, 2, 0, 1}));
}

TEST(Assignment, CountsHostsThatHaveTheLocalRank) {
  const Assignment assignment = assign_ranks({{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}}, 7);
  EXPECT_THAT(ranks_of(assignment),
              ElementsAre(RankAssignment{7, 0, 5, 0, 2, 0, 3}, RankAssignment{7, 1, 5, 1, 2, 0, 2},
                          RankAssignment{7, 2, 5, 0, 1, 1, 3}, RankAssignment{7, 3, 5, 0, 2, 2, 3},
                          RankAssignment{7, 4, 5, 1, 2, 1, 2}));
}

TEST(Assignment, FindsRanksAndWorkers) {
  const Assignment assignment = assign_ranks({{0, 0}, {2, 0, 1}, {2, 3}}, 0);
  EXPECT_EQ(assignment.rank_of({2, 0, 1}), 1);
  EXPECT_EQ(assignment.rank_of({2, 0, 0}), std::nullopt) << "another incarnation";
  EXPECT_EQ(assignment.worker(2), (WorkerId{2, 3}));
  ASSERT_EQ(assignment.on_host(2).size(), 2u);
  EXPECT_EQ(assignment.on_host(2).front().ranks.rank, 1);
  EXPECT_TRUE(assignment.on_host(1).empty());
}

TEST(Assignment, OfTheNextGenerationKeepsTheOrderOfThoseWhoStay) {
  const Assignment first = assign_ranks({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, 3);
  const Assignment next = reassign_ranks(first, {{0, 0, 1}, {0, 1}, {1, 0}, {1, 1}});
  EXPECT_EQ(next.generation(), 4u);
  EXPECT_THAT(ids_of(next),
              ElementsAre(WorkerId{0, 1}, WorkerId{0, 0, 1}, WorkerId{1, 0}, WorkerId{1, 1}));
  EXPECT_EQ(next.rank_of({0, 1}), 0) << "a replacement never has rank 0";
}

TEST(Assignment, OfTheNextGenerationPutsHostsWithoutStateBehindTheOthers) {
  const Assignment first = assign_ranks({{0, 0}, {1, 0}}, 0);
  const Assignment next = reassign_ranks(first, {{0, 0, 1}, {1, 0}, {2, 1}, {2, 0}});
  EXPECT_THAT(ids_of(next),
              ElementsAre(WorkerId{1, 0}, WorkerId{0, 0, 1}, WorkerId{2, 0}, WorkerId{2, 1}));
}

TEST(Assignment, OfAnyGenerationHasEveryWorkerOnceAndHostsTogether) {
  Assignment assignment = assign_ranks({{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}}, 0);
  for (int round = 0; round < 20; ++round) {
    // Replaces one worker after the other; two hosts are added and removed.
    std::vector<WorkerId> workers;
    for (const AssignedWorker& one : assignment.workers()) workers.push_back(one.id);
    ++workers[static_cast<size_t>(round) % workers.size()].incarnation;
    if (round % 3 == 0) std::erase_if(workers, [](const WorkerId& one) { return one.host == 3; });
    if (round % 3 == 1) workers.push_back({3, 0, round});
    assignment = reassign_ranks(assignment, workers);
    ASSERT_EQ(assignment.size(), static_cast<int>(workers.size()));
    size_t together = 0;
    for (int host = 0; host < 4; ++host) together += assignment.on_host(host).size();
    EXPECT_EQ(together, workers.size());
    for (const WorkerId& worker : workers) EXPECT_TRUE(assignment.rank_of(worker));
  }
}

}  // namespace
}  // namespace hvd::launcher

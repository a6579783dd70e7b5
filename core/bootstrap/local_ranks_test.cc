#include "core/bootstrap/local_ranks.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

std::vector<PeerCard> cards_on(const std::vector<std::string>& hosts) {
  std::vector<PeerCard> cards;
  for (size_t i = 0; i < hosts.size(); ++i) {
    PeerCard card;
    card.rank = static_cast<int32_t>(i);
    card.size = static_cast<int32_t>(hosts.size());
    card.hostname = hosts[i];
    card.kernel = hosts[i];
    cards.push_back(card);
  }
  return cards;
}

Identity completed(int rank, const std::vector<PeerCard>& cards) {
  Identity identity;
  identity.rank = rank;
  identity.size = static_cast<int>(cards.size());
  identity.local_known = identity.cross_known = false;
  complete_local_ranks(identity, cards);
  return identity;
}

TEST(LocalRanks, FollowsFromWhereTheRanksAre) {
  const auto cards = cards_on({"a", "a", "b", "a", "b"});  // a: 0 1 3, b: 2 4
  const int local[] = {0, 1, 0, 2, 1}, locals[] = {3, 3, 2, 3, 2};
  const int cross[] = {0, 0, 1, 0, 1}, crosses[] = {2, 2, 2, 1, 2};
  for (int rank = 0; rank < 5; ++rank) {
    const Identity identity = completed(rank, cards);
    EXPECT_EQ(identity.local_rank, local[rank]);
    EXPECT_EQ(identity.local_size, locals[rank]);
    EXPECT_EQ(identity.cross_rank, cross[rank]);
    EXPECT_EQ(identity.cross_size, crosses[rank]);
  }
}

TEST(LocalRanks, WhatTheLauncherSaysStays) {
  Identity identity;
  identity.rank = 1;
  identity.size = 4;
  identity.local_rank = 2;  // as Open MPI 5 counts
  identity.local_size = 4;
  identity.cross_known = false;
  complete_local_ranks(identity, cards_on({"a", "a", "a", "a"}));
  EXPECT_EQ(identity.local_rank, 2);
  EXPECT_EQ(identity.local_size, 4);
  EXPECT_EQ(identity.cross_rank, 0);
  EXPECT_EQ(identity.cross_size, 1);
}

TEST(LocalRanks, AJobOfOneIsComplete) {
  Identity identity;
  complete_local_ranks(identity, {});
  EXPECT_EQ(identity.local_size, 1);
}

}  // namespace
}  // namespace hvd

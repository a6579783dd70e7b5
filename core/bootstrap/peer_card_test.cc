#include "core/bootstrap/peer_card.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd {
namespace {

PeerCard card_of(int rank, const std::string& hostname, const std::string& agreed = "A=1\nB=2\n") {
  PeerCard card;
  card.rank = rank;
  card.size = 4;
  card.hostname = hostname;
  card.kernel = "kernel";
  card.network = "network";
  card.addresses = {"10.0.0.1", "fd00::1"};
  card.control_port = 7;
  card.data_port = 8;
  card.agreed = agreed;
  return card;
}

TEST(PeerCard, SurvivesTheWire) {
  PeerCard card = card_of(3, "node");
  card.only_these_addresses = true;
  card.cores = {0, 1, 300};
  EXPECT_EQ(read_peer_card(to_bytes(card)), card);
}

TEST(PeerCard, ACutOneIsRefused) {
  const ByteVector bytes = to_bytes(card_of(3, "node"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_peer_card(ConstBytes(bytes).first(size)), Error);
  }
}

TEST(Topology, HostsComeInTheOrderOfTheirLowestRank) {
  const auto topology =
      topology_of({card_of(0, "b"), card_of(1, "a"), card_of(2, "b"), card_of(3, "c")}, false);
  EXPECT_EQ(topology.host_ranks, (std::vector<std::vector<int>>{{0, 2}, {1}, {3}}));
  EXPECT_EQ(topology.host_of, (std::vector<int>{0, 1, 0, 2}));
}

TEST(Topology, TheSameNameOnTwoMachinesIsTwoHosts) {
  auto elsewhere = card_of(1, "a"), contained = card_of(2, "a");
  elsewhere.kernel = "another kernel";
  contained.network = "of a container";
  EXPECT_EQ(topology_of({card_of(0, "a"), elsewhere, contained}, false).hosts(), 3);
  EXPECT_FALSE(on_one_machine(card_of(0, "a"), elsewhere));
  EXPECT_FALSE(on_one_machine(card_of(0, "a"), contained));
  EXPECT_TRUE(on_one_machine(card_of(0, "a"), card_of(3, "b")));
  const std::vector<PeerCard> all{card_of(0, "a"), elsewhere, contained, card_of(3, "b")};
  EXPECT_TRUE(are_on_one_machine(all, {0, 3}));
  EXPECT_TRUE(are_on_one_machine(all, {1}));
  EXPECT_FALSE(are_on_one_machine(all, {0, 1, 3}));
}

TEST(Topology, EveryRankIsAHostWhereMemoryIsNotShared) {
  EXPECT_EQ(topology_of({card_of(0, "a"), card_of(1, "a")}, true).hosts(), 2);
}

/// Of ranks on one machine that may use these cores.
std::vector<PeerCard> cards_of(const std::vector<std::vector<uint16_t>>& cores) {
  std::vector<PeerCard> cards;
  for (const auto& of_rank : cores) {
    cards.push_back(card_of(static_cast<int>(cards.size()), "a"));
    cards.back().cores = of_rank;
  }
  return cards;
}

TEST(Cores, AreEnoughWhenRanksTogetherMayUseAsManyAsTheyAre) {
  EXPECT_TRUE(has_core_for_each(cards_of({{0, 1}, {0, 1}}), 0));
  EXPECT_TRUE(has_core_for_each(cards_of({{0}, {1}}), 1));
  EXPECT_FALSE(has_core_for_each(cards_of({{0}, {0}}), 1));
  EXPECT_FALSE(has_core_for_each(cards_of({{0, 1}, {0, 1}, {0, 1}}), 2));
  auto apart = cards_of({{0}, {0}});
  apart[1].hostname = "b";
  apart[1].network = "of a container";
  EXPECT_FALSE(has_core_for_each(apart, 0));  // the kernel has no more cores for that
  apart[1].kernel = "another kernel";
  EXPECT_TRUE(has_core_for_each(apart, 0));
  apart[0].kernel = apart[1].kernel = "";  // unknown
  apart[1].hostname = "b";
  EXPECT_TRUE(has_core_for_each(apart, 0));
}

TEST(Cores, AreSharedByRanksInARow) {
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {1}, {1}}), {0, 1, 2, 3}), 2);
  EXPECT_EQ(ranks_per_core(cards_of({{0, 1}, {0, 1}, {0, 1}, {0, 1}}), {0, 1, 2, 3}), 2);
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {0}}), {0, 1, 2}), 3);
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {1}}), {0, 1}), 1);
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {1}, {1}}), {1, 2}), 1);        // of a part of all
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {1}, {0}, {1}}), {0, 1, 2, 3}), 1);  // not in a row
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {0}, {1}}), {0, 1, 2, 3}), 1);  // not alike
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {1}}), {0, 1, 2}), 1);
  EXPECT_EQ(ranks_per_core(cards_of({{0}, {0}, {0, 1}, {0, 1}}), {0, 1, 2, 3}), 1);
  EXPECT_EQ(
      ranks_per_core(cards_of({{0}, {0}, {0}, {0}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}}),
                     {0, 1, 2, 3, 4, 5, 6, 7}),
      1);
  EXPECT_EQ(
      ranks_per_core(cards_of({{0, 1}, {0, 1}, {0, 1}, {0, 1}, {2}, {2}}), {0, 1, 2, 3, 4, 5}), 2);
  auto apart = cards_of({{0}, {0}});
  apart[1].kernel = "another kernel";
  EXPECT_EQ(ranks_per_core(apart, {0, 1}), 1);
  EXPECT_EQ(ranks_per_core({}, {0}), 1);
}

TEST(Disagreement, EqualCardsAreOneJob) {
  EXPECT_EQ(disagreement_of({card_of(0, "a"), card_of(1, "b")}), "");
}

TEST(Disagreement, NamesTheKnobTheRanksAndTheValues) {
  const std::string other = "A=1\nB=3\n";
  EXPECT_EQ(disagreement_of(
                {card_of(0, "a"), card_of(1, "a", other), card_of(2, "a"), card_of(3, "a", other)}),
            "B must be the same on every rank, but is 2 on ranks 0 and 2, 3 on ranks 1 and 3");
}

TEST(Disagreement, NamesTheNumberOfRanks) {
  auto wrong = card_of(1, "a");
  wrong.size = 3;
  EXPECT_EQ(disagreement_of({card_of(0, "a"), wrong}),
            "the number of ranks must be the same on every rank, but is 3 on rank 1, 4 on rank 0");
}

TEST(RanksText, ReadsAsASentence) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({3, 5}), "ranks 3 and 5");
  EXPECT_EQ(ranks_text({1, 2, 3}), "ranks 1, 2 and 3");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace hvd

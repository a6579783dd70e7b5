// What follows from the cards of the ranks of a group.
#include "core/backend/nccl/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Ranks 4, 5 and 6, each with a GPU of its own and the same NCCL.
class Meeting : public ::testing::Test {
 protected:
  Meeting() {
    for (size_t i = 0; i < cards_.size(); ++i) {
      cards_[i].nccl_version = 22809;
      cards_[i].has_gpu = 1;
      cards_[i].uuid.set("GPU-" + std::to_string(i));
      cards_[i].bus_id.set("0000:0" + std::to_string(i) + ":00.0");
      cards_[i].host.set("there");
    }
  }
  Decision decide(GpuOperationsChoice choice = GpuOperationsChoice::automatic) const {
    return nccl::decide(cards_, {4, 5, 6}, {choice});
  }

  std::vector<Card> cards_ = std::vector<Card>(3);
};

TEST_F(Meeting, EqualRanksUseNccl) {
  const Decision made = decide();
  EXPECT_TRUE(made.by_nccl && made.is_final);
  EXPECT_EQ(made.why + made.error, "");
}

TEST_F(Meeting, RanksMeetAgainIfOneHasNoGpuYet) {
  cards_[1].has_gpu = 0;
  const Decision made = decide();
  EXPECT_FALSE(made.by_nccl || made.is_final);
  EXPECT_EQ(made.why + made.error, "");
}

TEST_F(Meeting, DifferentVersionsAreAnErrorThatNamesBothRanks) {
  cards_[2].nccl_version = 22705;
  EXPECT_THAT(decide().error, AllOf(HasSubstr("rank 4 has NCCL 2.28.9, but rank 6 has NCCL 2.27.5"),
                                    HasSubstr("HOROVOD_NCCL_LIBRARY")));
}

TEST_F(Meeting, WithoutNcclOnARankTheReasonIsGiven) {
  cards_[1].nccl_version = 0;
  const Decision made = decide();
  EXPECT_FALSE(made.by_nccl);
  EXPECT_THAT(made.why, HasSubstr("rank 4 has NCCL 2.28.9, but rank 5 has no NCCL"));
  EXPECT_THAT(decide(GpuOperationsChoice::nccl).error, HasSubstr("rank 5 has no NCCL"));
  for (Card& card : cards_) card.nccl_version = 0;
  EXPECT_EQ(decide().why, "") << "every rank has warned by itself";
}

TEST_F(Meeting, RanksOnOneGpuDoNotUseNcclUnlessItAllowsThat) {
  cards_[2].uuid = cards_[1].uuid;
  cards_[2].visible.set("1");
  EXPECT_FALSE(decide().by_nccl);
  EXPECT_THAT(decide().why,
              HasSubstr("rank 5 (CUDA_VISIBLE_DEVICES not set) and rank 6 (CUDA_VISIBLE_DEVICES "
                        "=1) use the same GPU of host there"));
  EXPECT_THAT(decide(GpuOperationsChoice::nccl).error, HasSubstr("use the same GPU"));
  for (Card& card : cards_) card.nccl_version = 23007;
  EXPECT_FALSE(decide().by_nccl) << "not enabled";
  for (Card& card : cards_) card.may_share = 1;
  EXPECT_TRUE(decide().by_nccl);
  cards_[2].host.set("container");
  for (Card& card : cards_) card.may_share = 0;
  EXPECT_THAT(decide().why, HasSubstr("use the same GPU")) << "the UUID is enough";
  cards_[2].uuid.set("MIG-2");
  cards_[2].bus_id = cards_[1].bus_id;
  EXPECT_TRUE(decide().by_nccl) << "the same place in another host";
  cards_[2].host = cards_[1].host;
  EXPECT_THAT(decide().why, HasSubstr("use instances (MIG) of one GPU"));
}

TEST_F(Meeting, NcclDoesNotSendToOtherHostsWhatMustBeEncrypted) {
  const auto encrypting = [&](GpuOperationsChoice choice) {
    return nccl::decide(cards_, {4, 5, 6}, {.choice = choice, .encrypt = true});
  };
  EXPECT_TRUE(encrypting(GpuOperationsChoice::automatic).by_nccl) << "all are on one host";
  cards_[2].host.set("here");
  EXPECT_FALSE(encrypting(GpuOperationsChoice::automatic).by_nccl);
  EXPECT_THAT(encrypting(GpuOperationsChoice::automatic).why, HasSubstr("unset HOROVOD_TLS"));
  EXPECT_THAT(encrypting(GpuOperationsChoice::nccl).error, HasSubstr("unset HOROVOD_TLS"));
}

TEST_F(Meeting, RanksWithoutNcclMayShareMemoryIfAllAreOnOneHost) {
  EXPECT_FALSE(decide().may_share_memory) << "they use NCCL";
  cards_[1].nccl_version = 0;
  EXPECT_TRUE(decide().may_share_memory);
  cards_[2].host.set("here");
  EXPECT_FALSE(decide().may_share_memory);
  cards_.resize(1);
  cards_[0].nccl_version = 0;
  EXPECT_FALSE(nccl::decide(cards_, {4}, {}).may_share_memory) << "there is nothing to share";
}

}  // namespace
}  // namespace hvd::nccl

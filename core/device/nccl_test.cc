// NCCL by its table, on the stand-in: ranks are threads with a GPU each.
#include "core/device/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/nccl_testing.h"

namespace hvd::device {
namespace {

using test::error_of_world;
using test::Rank;
using test::Variable;
using test::world;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclCalls : public test::StandIn {};

TEST_F(NcclCalls, CollectivesGiveTheSameAsOnTheHost) {
  world(3, [](Rank& rank) {
    auto x = rank.floats({1.0f + static_cast<float>(rank.number), 10});
    auto y = rank.floats({0, 0});
    rank.check(rank.call().all_reduce(x.at(), y.at(), 2, NcclType::float32, kNcclSum, rank.comm,
                                      rank.stream.handle()));
    EXPECT_THAT(y.read(rank), ElementsAre(6, 30));
    rank.check(rank.call().broadcast(x.at(), y.at(), 2, NcclType::float32, 2, rank.comm,
                                     rank.stream.handle()));
    EXPECT_THAT(y.read(rank), ElementsAre(3, 10));
    auto all = rank.floats(std::vector<float>(3));
    rank.check(rank.call().all_gather(x.at(), all.at(), 1, NcclType::float32, rank.comm,
                                      rank.stream.handle()));
    EXPECT_THAT(all.read(rank), ElementsAre(1, 2, 3));
    auto part = rank.floats({0});
    rank.check(rank.call().reduce_scatter(all.at(), part.at(), 1, NcclType::float32, kNcclMax,
                                          rank.comm, rank.stream.handle()));
    EXPECT_THAT(part.read(rank), ElementsAre(static_cast<float>(rank.number + 1)));
    rank.check(rank.call().reduce(x.at(), y.at(), 2, NcclType::float32, kNcclProduct, 0, rank.comm,
                                  rank.stream.handle()));
    const float product = rank.number == 0 ? 6.0f : 3.0f;
    EXPECT_EQ(y.read(rank).front(), product);
  });
}

TEST_F(NcclCalls, LargeTensorsAreMovedInPieces) {
  world(2, [](Rank& rank) {
    auto x = rank.floats(std::vector<float>(100'001, 2.0f));
    rank.check(rank.call().all_reduce(x.at(), x.at(), 100'001, NcclType::float32, kNcclSum,
                                      rank.comm, rank.stream.handle()));
    EXPECT_THAT(x.read(rank), Each(4.0f));
  });
}

TEST_F(NcclCalls, AGroupOfMessagesIsAnAllToAll) {
  world(3, [](Rank& rank) {
    constexpr size_t kCount = 9000;  // several pieces each
    const auto mine = static_cast<float>(rank.number);
    auto out = rank.floats(std::vector<float>(3 * kCount, mine));
    auto in = rank.floats(std::vector<float>(3 * kCount));
    rank.check(rank.call().group_start());
    for (int peer = 0; peer < 3; ++peer) {
      const size_t at = static_cast<size_t>(peer) * kCount;
      rank.check(rank.call().send(out.at(at), kCount, NcclType::float32, peer, rank.comm,
                                  rank.stream.handle()));
      rank.check(rank.call().receive(in.at(at), kCount, NcclType::float32, peer, rank.comm,
                                     rank.stream.handle()));
    }
    rank.check(rank.call().group_end());
    const auto read = in.read(rank);
    for (size_t i = 0; i < read.size(); ++i)
      ASSERT_EQ(read[i], static_cast<float>(i / kCount)) << i;
  });
}

TEST_F(NcclCalls, AveragesInHalfTypesHaveTheRoundedFactorOfNccl) {
  world(3, [](Rank& rank) {
    auto x = rank.floats({0});
    const uint16_t one = 0x3f80;  // bfloat16
    const PinnedMemory host(rank.gpu.context, sizeof(one));
    std::memcpy(host.bytes().data(), &one, sizeof(one));
    copy_async(test::driver(), x.address(), host.address(), sizeof(one), rank.stream.handle());
    rank.check(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::bfloat16, kNcclAvg, rank.comm,
                                      rank.stream.handle()));
    copy_async(test::driver(), host.address(), x.address(), sizeof(one), rank.stream.handle());
    test::await([&] { return rank.stream.idle(); });
    uint16_t mean = 0;
    std::memcpy(&mean, host.bytes().data(), sizeof(mean));
    EXPECT_EQ(mean, 0x3f80);  // 3 * 0.33398 = 1.00195, rounded to 1
  });
}

TEST_F(NcclCalls, RanksThatDisagreeAreFound) {
  const auto disagree = [](auto count, auto type, auto op) {
    world(2, [=](Rank& rank) {
      auto x = rank.floats({1, 2, 3, 4});
      const bool first = rank.number == 0;
      rank.check(rank.call().all_reduce(x.at(), x.at(), first ? 2 : count,
                                        first ? NcclType::float32 : type, first ? kNcclSum : op,
                                        rank.comm, rank.stream.handle()));
      x.read(rank);
    });
  };
  const char* const text = "the ranks disagree: rank . calls ncclAllReduce number 1 with";
  EXPECT_DEATH(disagree(3, NcclType::float32, kNcclSum), text);
  EXPECT_DEATH(disagree(2, NcclType::int32, kNcclSum), text);
  EXPECT_DEATH(disagree(2, NcclType::float32, kNcclMax), text);
}

TEST_F(NcclCalls, ACollectiveWaitsForTheEventsOfItsStream) {
  const auto use_early = [](bool waits) {
    world(2, [=](Rank& rank) {
      const test::Framework framework(rank.gpu.context);
      auto x = rank.floats({0});
      Event ready(rank.gpu.context, EventUse::ordering);
      float* const data = static_cast<float*>(x.at());
      framework.queue("producer", {{data, sizeof(float), true}}, [=] { *data = 21; });
      ready.record(framework.stream());
      if (waits) ready.delay(rank.stream.handle());
      rank.check(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                                        rank.stream.handle()));
      EXPECT_THAT(x.read(rank), ElementsAre(42));
      framework.finish();
    });
  };
  use_early(true);
  EXPECT_DEATH(use_early(false), "ncclAllReduce on stream .* memory that producer on stream");
}

TEST_F(NcclCalls, NothingMayFollowWhileACallIsInProgress) {
  const auto misuse = [](const std::function<void(Rank&)>& next) {
    world(1, [&](Rank& rank) {
      auto x = rank.floats({1});
      rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                             rank.stream.handle());
      next(rank);
    });
  };
  EXPECT_DEATH(misuse([](Rank& rank) {
                 Event event(rank.gpu.context, EventUse::ordering);
                 event.record(rank.stream.handle());
               }),
               "cuEventRecord is queued while an operation of NCCL on this stream is still");
  EXPECT_DEATH(misuse([](Rank& rank) {
                 rank.call().all_reduce(nullptr, nullptr, 0, NcclType::float32, kNcclSum, rank.comm,
                                        rank.stream.handle());
               }),
               "ncclAllReduce: an operation of this communicator is still in progress");
}

TEST_F(NcclCalls, AContextOrAStreamOfAnotherGpuIsMisuse) {
  const auto call_with = [](bool own_context) {
    world(1, [=](Rank& rank) {
      auto x = rank.floats({1});
      const test::Gpu other(1);
      const Stream stream(other.context);
      const auto call = [&] {
        rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                               stream.handle());
      };
      if (!own_context) return call();
      const ContextScope scope(rank.gpu.context);
      call();
    });
  };
  EXPECT_DEATH(call_with(false),
               "ncclAllReduce: wrong context: GPU 1 is current, the communicator is of GPU 0");
  EXPECT_DEATH(call_with(true),
               "ncclAllReduce: wrong stream: it is of GPU 1, the communicator of GPU 0");
}

TEST_F(NcclCalls, TwoThreadsInACommunicatorAreMisuse) {
  const auto both = [] {
    world(2, [](Rank& rank) {
      if (rank.number == 1) return test::await([] { return false; });
      std::thread waits([&] { rank.call().comm_destroy(rank.comm); });  // for rank 1
      test::await([&] {
        NcclResult state = NcclResult::success;
        rank.call().comm_get_async_error(rank.comm, &state);
        return false;
      });
    });
  };
  EXPECT_DEATH(both(), "another thread is in a function of this communicator");
}

TEST_F(NcclCalls, NothingIsFreedWhileACollectiveRuns) {
  const auto free_early = [] {
    world(2, [](Rank& rank) {
      if (rank.number == 1) return test::await([] { return false; });
      auto x = rank.floats({1});
      auto unused = std::make_unique<DeviceMemory>(rank.gpu.context, 64);
      rank.check(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                                        rank.stream.handle()));
      unused.reset();
    });
  };
  EXPECT_DEATH(free_early(), "cuMemFree_v2: it may wait for the collective that is queued");
}

TEST_F(NcclCalls, ALostRankIsReportedAndLeavesOthersWaitingUntilTheyAbort) {
  std::atomic<bool> queued{false};
  const auto lose_one = [&](Rank& rank) {
    if (rank.number == 1) {
      test::await([&] { return queued.load(); });
      rank.check(rank.call().comm_abort(rank.comm));
      return;
    }
    auto x = rank.floats({1});
    rank.check(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                                      rank.stream.handle()));
    queued.store(true);
    NcclResult state = NcclResult::success;
    test::await([&] {
      rank.call().comm_get_async_error(rank.comm, &state);
      return state != NcclResult::success;
    });
    EXPECT_EQ(state, NcclResult::remote_error);
    EXPECT_FALSE(rank.stream.idle()) << "the collective still waits";
    rank.check(rank.call().comm_revoke(rank.comm, 0));
    test::await([&] { return rank.stream.idle(); });
    EXPECT_EQ(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank.comm,
                                     rank.stream.handle()),
              NcclResult::invalid_usage);
    rank.check(rank.call().comm_abort(rank.comm));
  };
  EXPECT_EQ(error_of_world(2, {.ends_by_itself = true}, lose_one), "");
}

TEST_F(NcclCalls, TwoRanksOnOneGpuNeedNccl230) {
  const auto share = [] { return error_of_world(2, {.one_gpu = true}, [](Rank&) {}); };
  EXPECT_THAT(share(), AllOf(HasSubstr("init: NCCL 2.28.9 failed with invalid usage"),
                             HasSubstr("Duplicate GPU detected : rank 0 and rank 1")));
  const Variable version("FAKE_NCCL_VERSION", "23007"), enabled("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  EXPECT_EQ(share(), "");
}

TEST_F(NcclCalls, AFailureSaysWhatNcclSaidAndTheRemedy) {
  const auto failing = [](const char* code) {
    const Variable fails("FAKE_NCCL_FAIL", std::string("ncclCommInitRankConfig=") + code);
    return error_of_world(1, {}, [](Rank&) {});
  };
  EXPECT_THAT(failing("2"), HasSubstr("failed with unhandled system error"));
  EXPECT_THAT(failing("6"), HasSubstr("look for the first error in the output of the other ranks"));
  EXPECT_THAT(failing("1"), AllOf(HasSubstr("failed with unhandled cuda error"),
                                  HasSubstr("256 of 256 MiB of the GPU are free")));
  const Variable needs("FAKE_NCCL_NEEDS_DRIVER", "13000");
  EXPECT_THAT(error_of_world(1, {}, [](Rank&) {}),
              AllOf(HasSubstr("CUDA driver version is insufficient for CUDA runtime version"),
                    HasSubstr("the driver supports CUDA 12.9"),
                    HasSubstr("NCCL for CUDA 13 needs driver 580 or later")));
}

TEST_F(NcclCalls, MemoryAndRegistrationOfNcclAreThere) {
  world(1, [](Rank& rank) {
    void* memory = nullptr;
    rank.check(rank.call().memory_allocate(&memory, 4096));
    void* handle = nullptr;
    rank.check(rank.call().comm_register(rank.comm, memory, 4096, &handle));
    rank.check(rank.call().comm_deregister(rank.comm, handle));
    rank.check(rank.call().memory_free(memory));
  });
}

TEST_F(NcclCalls, FactorsBeforeASumAreThoseOfTheCommunicator) {
  world(2, [](Rank& rank) {
    float half = 0.5f;
    NcclReduceOp op = 0;
    rank.check(rank.call().red_op_create_pre_mul_sum(&op, &half, NcclType::float32,
                                                     ScalarResidence::host_immediate, rank.comm));
    auto x = rank.floats({3});
    rank.check(rank.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, op, rank.comm,
                                      rank.stream.handle()));
    EXPECT_THAT(x.read(rank), ElementsAre(3));
    rank.check(rank.call().red_op_destroy(op, rank.comm));
  });
}

}  // namespace
}  // namespace hvd::device

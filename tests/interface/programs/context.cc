// Context and Handle of the C++ interface. Runs on every rank of a job of any size.
#include <gtest/gtest.h>

#include <horovod/horovod.hpp>
#include <numeric>
#include <vector>

namespace {

hvd::Context* job;

static_assert(hvd::dtype_of<float> == HVD_FLOAT32 && hvd::dtype_of<std::uint16_t> == HVD_UINT16);
static_assert(hvd::dtype_of<hvd::float16> == HVD_FLOAT16 && hvd::dtype_of<bool> == HVD_BOOL);
static_assert(hvd::dtype_of<std::int8_t> == HVD_INT8 && hvd::dtype_of<long> == HVD_INT64);
static_assert(!hvd::Element<std::uint64_t> && !hvd::Element<std::string>);

float sum_of_ranks() { return static_cast<float>(job->size() * (job->size() - 1) / 2); }

TEST(Context, KnowsItsPlace) {
  EXPECT_EQ(job->local_size(), job->size());
  EXPECT_EQ(job->local_rank(), job->rank());
  EXPECT_EQ(job->world().cross_size, 1);
}

TEST(Context, AllreducesIntoAnOutputInPlaceAndInGroups) {
  std::vector<float> in(100, static_cast<float>(job->rank())), out(100), more(7, 1.0f);
  job->allreduce("apart", in, out, hvd::sum);
  EXPECT_EQ(out, std::vector<float>(100, sum_of_ranks()));
  EXPECT_EQ(in.front(), static_cast<float>(job->rank()));
  const std::vector<std::span<float>> both{in, more};
  job->allreduce("group", both, hvd::average);
  EXPECT_FLOAT_EQ(in.back(), sum_of_ranks() / static_cast<float>(job->size()));
  EXPECT_EQ(more, std::vector<float>(7, 1.0f));
}

TEST(Context, AllgathersWhatDiffersInSize) {
  const std::vector<int> own(static_cast<std::size_t>(job->rank()), job->rank());
  const hvd::Gathered<int> all = job->allgather("all", own);
  std::vector<int> expected;
  for (int rank = 0; rank < job->size(); ++rank)
    expected.insert(expected.end(), static_cast<std::size_t>(rank), rank);
  EXPECT_EQ(std::vector<int>(all.begin(), all.end()), expected);
}

TEST(Context, Broadcasts) {
  std::vector<std::uint16_t> data(10, static_cast<std::uint16_t>(job->rank()));
  job->broadcast("from the last", data, job->size() - 1);
  EXPECT_EQ(data.front(), job->size() - 1);
}

TEST(Context, SendsToTheNextRankInARing) {
  if (job->size() == 1) return;
  const int next = (job->rank() + 1) % job->size();
  const int previous = (job->rank() + job->size() - 1) % job->size();
  const std::vector<double> sent(70'000, job->rank());
  std::vector<double> received(70'000, -1);
  auto sending = job->send_async("to " + std::to_string(next), sent, next);
  job->receive("to " + std::to_string(job->rank()), received, previous);
  sending.wait();
  EXPECT_EQ(received.front(), previous);
  EXPECT_EQ(received.back(), previous);
  if (job->rank() == 0) job->send("once", sent, 1);
  if (job->rank() == 1) job->receive("once", received, 0);
}

TEST(Context, DealsOutUnequally) {
  std::vector<std::int32_t> splits(static_cast<std::size_t>(job->size()));
  std::iota(splits.begin(), splits.end(), 0);
  const auto total = static_cast<std::size_t>(std::accumulate(splits.begin(), splits.end(), 0));
  const std::vector<double> in(total, job->rank());
  const auto got = job->alltoall("deal", in, splits);
  ASSERT_EQ(got.elements.size(), static_cast<std::size_t>(job->rank() * job->size()));
  for (int from = 0; from < job->size(); ++from) {
    EXPECT_EQ(got.received_splits[static_cast<std::size_t>(from)], job->rank());
    for (int i = 0; i < job->rank(); ++i)
      EXPECT_EQ(got.elements[static_cast<std::size_t>(from * job->rank() + i)], from);
  }
}

TEST(Context, ReducesInParts) {
  const std::size_t total = 10;
  std::vector<int> in(total);
  std::iota(in.begin(), in.end(), 0);
  std::vector<int> out(job->reduced_elements(total));
  job->reducescatter("parts", in, out, hvd::sum);
  const hvd::Gathered<int> all = job->allgather("parts", out);
  ASSERT_EQ(all.size(), total);
  for (std::size_t i = 0; i < total; ++i) EXPECT_EQ(all[i], job->size() * in[i]);
}

TEST(Context, StartsInAnyOrder) {
  std::vector<float> a(1000, 1.0f), b(10, 2.0f);
  const bool other_way = job->rank() % 2 == 1;
  auto first = job->allreduce_async(other_way ? "b" : "a", other_way ? b : a, hvd::sum);
  auto second = job->allreduce_async(other_way ? "a" : "b", other_way ? a : b, hvd::sum);
  first.wait();
  second.wait();
  EXPECT_TRUE(first.poll() && second.poll());
  EXPECT_EQ(a.front(), static_cast<float>(job->size()));
  EXPECT_EQ(b.front(), 2 * static_cast<float>(job->size()));
}

TEST(Context, HasProcessSets) {
  if (job->size() == 1) GTEST_SKIP() << "there is no set but the world";
  const std::vector<std::int32_t> ranks{0, job->size() - 1};
  if (job->size() == 2) {
    EXPECT_THROW(job->add_process_set(ranks), hvd::Error);  // equals the world
    return;
  }
  const hvd::ProcessSet ends = job->add_process_set(ranks);
  EXPECT_EQ(job->size(ends), 2);
  const int rank = job->rank(ends);
  if (rank >= 0) {
    float data = 1;
    job->allreduce("ends", std::span(&data, 1), hvd::sum, ends);
    EXPECT_EQ(data, 2);
  } else {
    EXPECT_EQ(rank, -1);
  }
  job->barrier("before the set goes");
  job->remove_process_set(ends);
}

TEST(Context, Joins) {
  const int last = job->join();
  EXPECT_GE(last, 0);
  EXPECT_LT(last, job->size());
}

TEST(Handle, SaysWhichRanksDisagree) {
  std::vector<float> data(static_cast<std::size_t>(job->rank()) + 1);
  auto handle = job->allreduce_async("differs", data, hvd::sum);
  if (job->size() == 1) return handle.wait();
  try {
    handle.wait();
    FAIL();
  } catch (const hvd::Error& error) {
    EXPECT_EQ(error.status(), HVD_MISMATCH);
    EXPECT_NE(std::string(error.what()).find("rank"), std::string::npos) << error.what();
  }
}

TEST(Handle, WaitsWhenItGoes) {
  std::vector<float> data(1'000'000, 1.0f);
  { const auto dropped = job->allreduce_async("dropped", data, hvd::sum); }
  EXPECT_EQ(data.back(), static_cast<float>(job->size()));
}

TEST(Handle, HandsOutItsResultOnceAndMoves) {
  auto handle = job->barrier_async("once");
  hvd::Handle<void> moved = std::move(handle);
  moved.wait();
  EXPECT_THROW(moved.wait(), hvd::Error);
  EXPECT_THROW(handle.wait(), hvd::Error);
}

TEST(Misuse, IsAnErrorOnThisRank) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(job->allreduce("sizes", three, four, hvd::sum), hvd::Error);
  EXPECT_THROW(job->broadcast("root", three, job->size()), hvd::Error);
  EXPECT_THROW(job->size(hvd::ProcessSet{99}), hvd::Error);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  hvd::Context context({.dynamic_process_sets = true});
  job = &context;
  const int result = RUN_ALL_TESTS();
  context.barrier("end");
  return result;
}

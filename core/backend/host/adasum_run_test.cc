// Compares Adasum with a single process that combines whole vectors in double precision.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <random>

#include "core/backend/host/testing.h"

namespace hvd::test {
namespace {

Numbers combined(const Numbers& a, const Numbers& b) {
  double dot = 0, square_of_a = 0, square_of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += a[i] * b[i];
    square_of_a += a[i] * a[i];
    square_of_b += b[i] * b[i];
  }
  const double limit = std::sqrt(DBL_MIN);
  const double of_a = square_of_a < limit ? 1 : 1 - dot / (2 * square_of_a);
  const double of_b = square_of_b < limit ? 1 : 1 - dot / (2 * square_of_b);
  Numbers sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

/// Rank with rank ^ 1, then rank ^ 2, ...
Numbers adasum_of(std::vector<Numbers> vectors) {
  while (vectors.size() > 1) {
    std::vector<Numbers> pairs;
    for (size_t i = 0; i < vectors.size(); i += 2)
      pairs.push_back(combined(vectors[i], vectors[i + 1]));
    vectors = std::move(pairs);
  }
  return vectors[0];
}

struct Case {
  DType dtype = DType::float32;
  std::vector<size_t> sizes;  ///< elements of the tensors of the batch
  bool in_place = false;
  double prescale = 1.0;
  double postscale = 1.0;
  int joined = -1;
};

ByteVector input_of(const Case& c, int rank, size_t elements) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) * 1000 + elements);
  Numbers numbers(elements);
  for (double& number : numbers) number = static_cast<double>(random() % 4001) / 2000 - 1;
  return bytes_of(c.dtype, numbers);
}

/// [rank, tensor]; empty for a rank that has joined.
using Outputs = std::vector<std::vector<ByteVector>>;

Outputs run(const JobOptions& options, const Case& c) {
  Job job(options);
  const auto size = static_cast<size_t>(job.size());
  Outputs outputs(size), inputs(size);
  std::vector<std::vector<Batch>> batches(size);
  for (int rank = 0; rank < job.size(); ++rank) {
    Batch batch{.sequence = 1,
                .operation = {.dtype = c.dtype,
                              .op = ReduceOp::adasum,
                              .prescale = c.prescale,
                              .postscale = c.postscale}};
    for (const size_t elements : c.sizes) {
      const ByteVector input = input_of(c, rank, elements);
      inputs[rank].push_back(input);
      outputs[rank].push_back(c.in_place ? input : ByteVector(input.size()));
    }
    for (size_t i = 0; i < c.sizes.size(); ++i) {
      std::byte* output = outputs[rank][i].data();
      std::byte* input = c.in_place ? output : inputs[rank][i].data();
      const bool joined = rank == c.joined;
      batch.tensors.push_back({.input = joined ? nullptr : input,
                               .output = joined ? nullptr : output,
                               .shape = {static_cast<int64_t>(c.sizes[i])}});
    }
    batches[rank].push_back(batch);
  }
  EXPECT_TRUE(job.run(level_rules(), std::move(batches)));
  if (c.joined >= 0) outputs.erase(outputs.begin() + c.joined);
  return outputs;
}

double precision(DType dtype) {
  if (dtype == DType::float16) return 0x1p-7;
  if (dtype == DType::bfloat16) return 0x1p-4;
  return dtype == DType::float32 ? 0x1p-19 : 0x1p-44;
}

void expect_right(const JobOptions& options, const Case& c) {
  SCOPED_TRACE(::testing::Message() << name_of(options) << ", " << name_of(c.dtype) << ", in place "
                                    << c.in_place << ", joined " << c.joined);
  const Outputs outputs = run(options, c);
  for (const auto& of_rank : outputs) ASSERT_EQ(of_rank, outputs[0]);
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    std::vector<Numbers> vectors;
    for (int rank = 0; rank < ranks_of(options); ++rank) {
      vectors.push_back(numbers_of(c.dtype, input_of(c, rank, c.sizes[i]).data(), c.sizes[i]));
      for (double& number : vectors.back()) number *= rank == c.joined ? 0 : c.prescale;
    }
    const Numbers expected = adasum_of(std::move(vectors));
    const Numbers actual = numbers_of(c.dtype, outputs[0][i].data(), c.sizes[i]);
    for (size_t k = 0; k < c.sizes[i]; ++k)
      ASSERT_NEAR(actual[k], expected[k] * c.postscale, precision(c.dtype)) << "element " << k;
  }
}

constexpr std::array kTypes = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

std::vector<JobOptions> jobs() {
  std::vector<JobOptions> jobs;
  for (const int ranks : {2, 4, 8}) {
    jobs.push_back({.ranks_per_host = {ranks}});
    jobs.push_back({.ranks_per_host = std::vector<int>(static_cast<size_t>(ranks), 1)});
  }
  jobs.push_back({.ranks_per_host = {3, 1}});
  jobs.push_back({.ranks_per_host = {2, 2}, .levels = true});
  return jobs;
}

TEST(AdasumRun, EqualsOneProcessThatCombinesPairs) {
  for (const JobOptions& options : jobs())
    for (const DType dtype : kTypes)
      for (const bool in_place : {false, true})
        expect_right(options,
                     {.dtype = dtype, .sizes = {100, 1, 0, 3000, 7}, .in_place = in_place});
}

TEST(AdasumRun, ScalesBeforeAndAfter) {
  for (const JobOptions& options : jobs())
    expect_right(options, {.sizes = {100, 9}, .prescale = 0.25, .postscale = 3});
}

TEST(AdasumRun, ARankThatHasJoinedContributesZeros) {
  for (const JobOptions& options : jobs())
    for (const DType dtype : kTypes)
      expect_right(options, {.dtype = dtype, .sizes = {100, 9}, .joined = 1});
}

TEST(AdasumRun, TakesMoreThanACallCanCombine) {
  expect_right({.ranks_per_host = {4}}, {.sizes = {300000, 17}});
  expect_right({.ranks_per_host = {1, 1}}, {.dtype = DType::float64, .sizes = {300000, 17}});
}

TEST(AdasumRun, ATensorsBitsDependNeitherOnItsBatchNorOnWhereTheRanksAre) {
  const std::vector<size_t> sizes = {100, 70001, 3, 40000};
  const Outputs together = run({.ranks_per_host = {4}}, {.sizes = sizes});
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Outputs alone = run({.ranks_per_host = {1, 1, 1, 1}, .seed = 9}, {.sizes = {sizes[i]}});
    EXPECT_EQ(alone[0][0], together[0][i]) << "tensor " << i;
  }
}

}  // namespace
}  // namespace hvd::test

#include "core/kernel/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/kernel/pages.h"
#include "core/kernel/reference.h"
#include "core/kernel/testing.h"

namespace hvd::kernel {
namespace {

constexpr std::array kAllOps = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};

class Kernel : public testing::TestWithParam<DType> {};

TEST(Targets, IncludeVectorsOnEveryCpu) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  std::string names;
  for (const int64_t target : targets) names += std::string(" ") + hwy::TargetName(target);
  RecordProperty("targets", names);  // the report of the tests says what has run
  const auto has = [&](int64_t one) { return std::ranges::find(targets, one) != targets.end(); };
  EXPECT_LT(targets.front(), HWY_EMU128) << names;  // the best is first, the scalar one last
  EXPECT_TRUE(!HWY_ARCH_ARM_A64 || has(HWY_NEON)) << names;
}

struct ReduceCase {
  ReduceOp op = ReduceOp::sum;
  size_t sources = 2;
  size_t elements = 0;
  size_t misalignment = 0;
  size_t aliased = 0;    ///< index of the source that is the destination; equal to `sources`: none
  bool fetches = false;  ///< prefetches other memory during the reduction
};

void check_reduce(DType dtype, const ReduceCase& c) {
  SCOPED_TRACE(testing::Message() << name_of(c.op) << " of " << c.sources << " x " << c.elements
                                  << " misaligned by " << c.misalignment << ", destination is "
                                  << c.aliased);
  const size_t bytes = c.elements * element_bytes(dtype);
  std::vector<Buffer> buffers;
  std::vector<const void*> sources;
  for (size_t i = 0; i <= c.sources; ++i) {
    buffers.emplace_back(bytes, (c.misalignment * (i + 1)) % 64);
    fill_random(dtype, buffers[i], c.elements + 100 * i);
  }
  for (size_t i = 0; i < c.sources; ++i) sources.push_back(buffers[i].data());
  Buffer expected(bytes, 0);
  reference::reduce(c.op, dtype, expected.data(), sources, c.elements);
  const Buffer after = buffers[c.aliased];
  reduce(c.op, dtype, buffers[c.aliased].data(), sources, c.elements,
         {.soon = c.fetches ? after.data() : nullptr});
  expect_same(dtype, buffers[c.aliased].data(), expected.data(), c.elements);
  // No bytes are written beyond the end.
  EXPECT_EQ(std::memcmp(buffers[c.aliased].data() + bytes, after.data() + bytes, 16), 0);
}

TEST_P(Kernel, ReducesAsTheScalarReference) {
  EveryTarget().run([&] {
    for (const ReduceOp op : kAllOps)
      for (const size_t sources : {1, 2, 3, 7})
        for (const size_t elements : {0, 1, 3, 15, 64, 67, 257, 515})
          for (const size_t misalignment : {0, 1, 3})
            check_reduce(GetParam(), {op, sources, elements, misalignment, sources});
  });
}

TEST_P(Kernel, ReducesIntoAnyOfItsSources) {
  EveryTarget().run([&] {
    for (const ReduceOp op : kAllOps)
      for (const size_t sources : {1, 2, 3, 5})
        for (size_t aliased = 0; aliased < sources; ++aliased)
          check_reduce(GetParam(), {op, sources, 301, 1, aliased});
  });
}

TEST_P(Kernel, ReducesWholeRowsOfPages) {
  const size_t row = kPagesAtOnce * kPageBytes / element_bytes(GetParam());
  EveryTarget().run([&] {
    for (const size_t aliased : {0, 1, 2})
      for (const size_t misalignment : {0, 1}) {
        check_reduce(GetParam(), {ReduceOp::sum, 2, row, misalignment, aliased});
        check_reduce(GetParam(), {ReduceOp::max, 2, 2 * row + 67, misalignment, aliased});
      }
  });
}

TEST_P(Kernel, FetchesWhatIsReadSoonAndReducesTheSame) {
  EveryTarget().run([&] {
    for (const size_t sources : {1, 2, 3})
      for (const size_t elements : {0, 1, 67, 515})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
          check_reduce(GetParam(), {op, sources, elements, 1, 0, true});
  });
}

TEST_P(Kernel, ReducesAsManySourcesAsItPromises) {
  check_reduce(GetParam(), {ReduceOp::sum, kMaxSources, 37, 1, 500});
  check_reduce(GetParam(), {ReduceOp::max, kMaxSources, 37, 1, kMaxSources});
}

TEST_P(Kernel, ScalesAsTheScalarReference) {
  const DType dtype = GetParam();
  EveryTarget().run([&] {
    for (const double factor : {0.0, 1.0, 0.25, 1.0 / 3, -7.5, 1e6, 1e-6, 1e300})
      for (const size_t elements : {0, 1, 31, 64, 259})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(testing::Message() << elements << " by " << factor << " " << in_place);
          const size_t bytes = elements * element_bytes(dtype);
          Buffer source(bytes, 1), target(bytes, 3), expected(bytes, 0);
          fill_random(dtype, source, elements);
          reference::scale(dtype, expected.data(), source.data(), factor, elements);
          Buffer& destination = in_place ? source : target;
          scale(dtype, destination.data(), source.data(), {.factor = factor}, elements);
          expect_same(dtype, destination.data(), expected.data(), elements);
        }
  });
}

TEST_P(Kernel, FillsWithWhatChangesNothing) {
  const DType dtype = GetParam();
  constexpr size_t kElements = 97;
  for (const ReduceOp op : kAllOps) {
    SCOPED_TRACE(name_of(op));
    Buffer values(kElements * element_bytes(dtype), 1),
        neutral(kElements * element_bytes(dtype), 3);
    fill_random(dtype, values, 7);
    const Buffer before = values;
    fill_neutral(op, dtype, neutral.data(), kElements);
    const std::array<const void*, 2> sources = {neutral.data(), values.data()};
    reduce(op, dtype, values.data(), sources, kElements);
    for (size_t i = 0; i < kElements; ++i) {
      bool equal = false;  // numerically equal: 0 + -0 is 0
      reference::with_type(dtype, [&]<class T>(T*) {
        const auto now = reference::widened(reference::element<T>(values.data(), i));
        const auto then = reference::widened(reference::element<T>(before.data(), i));
        equal = now == then || (now != now && then != then);
      });
      EXPECT_TRUE(equal) << "element " << i;
    }
  }
}

TEST_P(Kernel, FillsWithZerosForAdasum) {
  const size_t bytes = 7 * element_bytes(GetParam());
  Buffer values(bytes, 1);
  fill_random(GetParam(), values, 3);
  fill_neutral(ReduceOp::adasum, GetParam(), values.data(), 7);
  EXPECT_EQ(ByteVector(values.data(), values.data() + bytes), ByteVector(bytes));
}

INSTANTIATE_TEST_SUITE_P(Types, Kernel,
                         testing::Values(DType::uint8, DType::int8, DType::uint16, DType::int16,
                                         DType::int32, DType::int64, DType::float16, DType::float32,
                                         DType::float64, DType::boolean, DType::bfloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

std::vector<uint16_t> all_16_bits() {
  std::vector<uint16_t> all(65536);
  std::iota(all.begin(), all.end(), uint16_t{0});
  return all;
}

class HalfTypes : public testing::TestWithParam<DType> {};

TEST_P(HalfTypes, EveryValueSurvivesConversionAndBack) {
  EveryTarget().run([&] {
    const auto all = all_16_bits();
    auto result = all;
    const std::array<const void*, 1> source = {all.data()};
    reduce(ReduceOp::sum, GetParam(), result.data(), source, all.size());
    expect_same(GetParam(), result.data(), all.data(), all.size());
  });
}

TEST_P(HalfTypes, EveryValueIsRoundedToNearestEven) {
  EveryTarget().run([&] {
    const auto all = all_16_bits();
    // Powers of two cover the subnormals and infinity; the other factors produce ties and
    // near-ties.
    for (const double factor : {0.5, 0.25, 0x1p-5, 0x1p-12, 2.0, 1024.0, 1.5, 0.75, 1.0009765625,
                                0.333251953125, 1.00390625, 3.0, -1.0}) {
      SCOPED_TRACE(factor);
      auto actual = all, expected = all;
      scale(GetParam(), actual.data(), all.data(), {.factor = factor}, all.size());
      reference::scale(GetParam(), expected.data(), all.data(), factor, all.size());
      expect_same(GetParam(), actual.data(), expected.data(), all.size());
    }
  });
}

uint16_t encoded(DType dtype, float value) {
  return dtype == DType::float16 ? reference::Float16::of(value).bits
                                 : reference::BFloat16::of(value).bits;
}

/// The difference between 1 and the next larger number.
float step_above_one(DType dtype) { return dtype == DType::float16 ? 0x1p-10F : 0x1p-7F; }

TEST_P(HalfTypes, RoundOnceAfterAllSources) {
  // Twice half of the last place of 1 is one last place, but only if both are added first.
  constexpr size_t kElements = 64 + 1;  // including a remainder of one element
  const float step = step_above_one(GetParam());
  std::array<uint16_t, kElements> ones, half_steps, expected, result{};
  ones.fill(encoded(GetParam(), 1));
  half_steps.fill(encoded(GetParam(), step / 2));
  expected.fill(encoded(GetParam(), 1 + step));
  const std::array<const void*, 3> sources = {ones.data(), half_steps.data(), half_steps.data()};
  EveryTarget().run([&] {
    reduce(ReduceOp::sum, GetParam(), result.data(), sources, kElements);
    EXPECT_EQ(result, expected);
  });
}

TEST_P(HalfTypes, WhatLiesJustBetweenTwoNumbersBecomesTheEvenOne) {
  const uint16_t sign = 0x8000, one = encoded(GetParam(), 1),
                 half_step = encoded(GetParam(), step_above_one(GetParam()) / 2);
  std::array<uint16_t, 256> starts, half_steps, expected, zeros{}, result{};
  for (size_t i = 0; i < starts.size(); ++i) {  // both signs, in lanes of both parities
    const auto from_one = static_cast<uint16_t>(i / 4);
    const uint16_t of_sign = i / 2 % 2 ? sign : uint16_t{0};
    starts[i] = static_cast<uint16_t>(of_sign | (one + from_one));
    half_steps[i] = of_sign | half_step;
    expected[i] = static_cast<uint16_t>(starts[i] + from_one % 2);
  }
  const std::array<const void*, 3> sources = {starts.data(), half_steps.data(), zeros.data()};
  EveryTarget().run([&] {
    for (const size_t count : {2, 3}) {
      reduce(ReduceOp::sum, GetParam(), result.data(), std::span(sources).first(count),
             starts.size());
      EXPECT_EQ(result, expected) << count;
    }
  });
}

TEST_P(HalfTypes, TheSumOfMinusZerosIsMinusZero) {
  std::array<uint16_t, 64> minus_zeros, result{};
  minus_zeros.fill(0x8000);
  const std::array<const void*, 2> sources = {minus_zeros.data(), minus_zeros.data()};
  EveryTarget().run([&] {
    reduce(ReduceOp::sum, GetParam(), result.data(), sources, result.size());
    EXPECT_EQ(result, minus_zeros);
  });
}

TEST_P(HalfTypes, WhatIsNoNumberBecomesNan) {
  const bool half = GetParam() == DType::float16;
  const uint16_t infinity = half ? 0x7c00 : 0x7f80, minus_infinity = half ? 0xfc00 : 0xff80;
  std::array<uint16_t, 64> infinities, minus_infinities, zeros{}, result{};
  infinities.fill(infinity);
  minus_infinities.fill(minus_infinity);
  const auto expect_nan = [&](ReduceOp op, const uint16_t* other) {
    const std::array<const void*, 3> sources = {infinities.data(), other, other};
    for (const size_t count : {2, 3}) {
      reduce(op, GetParam(), result.data(), std::span(sources).first(count), result.size());
      for (const uint16_t bits : result) EXPECT_GT(bits & 0x7fff, infinity) << count;
    }
  };
  EveryTarget().run([&] {
    expect_nan(ReduceOp::sum, minus_infinities.data());
    expect_nan(ReduceOp::product, zeros.data());
  });
}

TEST_P(HalfTypes, SumsOfAnySizeAreSubnormalWhereTheyShouldBe) {
  // Differences of adjacent numbers: for small numbers almost all are subnormal or zero.
  const auto minuends = all_16_bits();
  auto subtrahends = minuends;
  for (auto& bits : subtrahends) bits = (bits ^ 0x8000) + 3;
  const std::array<const void*, 2> sources = {minuends.data(), subtrahends.data()};
  std::vector<uint16_t> expected(minuends.size()), actual(minuends.size());
  reference::reduce(ReduceOp::sum, GetParam(), expected.data(), sources, minuends.size());
  EveryTarget().run([&] {
    reduce(ReduceOp::sum, GetParam(), actual.data(), sources, minuends.size());
    expect_same(GetParam(), actual.data(), expected.data(), minuends.size());
  });
}

TEST_P(HalfTypes, OneSpecialNumberAmongOthersIsKept) {
  constexpr size_t kElements = 64;
  const std::array<uint16_t, kElements> zeros{};
  const uint16_t infinity = GetParam() == DType::float16 ? 0x7c00 : 0x7f80,
                 nan = GetParam() == DType::float16 ? 0x7e00 : 0x7fc0;
  const std::array<uint16_t, 3> specials = {0x8003, infinity,
                                            nan};                  // the first element is subnormal
  const std::array<uint16_t, 3> plain = {0x0000, 0x3c00, 0x3f81};  // for any type
  EveryTarget().run([&] {
    for (size_t place = 0; place < kElements; ++place) {
      for (size_t k = 0; k < specials.size() * plain.size(); ++k) {
        std::array<uint16_t, kElements> values, actual{};
        values.fill(plain[k % plain.size()]);
        values[place] = specials[k / plain.size()];
        const std::array<const void*, 2> sources = {values.data(), zeros.data()};
        reduce(ReduceOp::sum, GetParam(), actual.data(), sources, kElements);
        EXPECT_EQ(actual, values) << "place " << place;
      }
    }
  });
}

TEST_P(HalfTypes, InfinitiesOfBothSignsSideBySideAreKept) {
  const bool half = GetParam() == DType::float16;
  const uint16_t infinity = half ? 0x7c00 : 0x7f80, minus_infinity = half ? 0xfc00 : 0xff80;
  std::array<uint16_t, 64> values, actual{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? minus_infinity : infinity;
  const std::array<const void*, 1> source = {values.data()};
  EveryTarget().run([&] {
    reduce(ReduceOp::sum, GetParam(), actual.data(), source, values.size());
    EXPECT_EQ(actual, values);
  });
}

TEST_P(HalfTypes, NanStaysNanAndInfinityInfinity) {
  const bool half = GetParam() == DType::float16;
  const uint16_t infinity = half ? 0x7c00 : 0x7f80, signalling = infinity + 1,
                 largest = infinity - 1;
  EveryTarget().run([&] {
    const std::array<uint16_t, 3> values = {infinity, signalling, largest};
    std::array<uint16_t, 3> result{};
    scale(GetParam(), result.data(), values.data(), {.factor = 2.0}, 3);
    EXPECT_EQ(result[0], infinity);
    EXPECT_GT(result[1], infinity);
    EXPECT_EQ(result[2], infinity);
  });
}

TEST_P(HalfTypes, WidenToFloatExactlyAndNarrowToNearestEven) {
  const auto check = [&]<class Half>(Half) {
    const auto all = all_16_bits();
    std::vector<float> wide(all.size()), between(all.size());
    std::vector<Half> expected(all.size());
    widen(GetParam(), wide.data(), all.data(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const float value = Half{all[i]}.value();
      ASSERT_TRUE(reference::same_element(DType::float32, &wide[i], &value, 0)) << i;
      between[i] = value * 1.0009765625F + 0x1p-26F;
      expected[i] = Half::of(between[i]);
    }
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{13}, all.size()}) {
      std::vector<uint16_t> narrowed(elements);
      narrow(GetParam(), narrowed.data(), between.data(), elements);
      expect_same(GetParam(), narrowed.data(), expected.data(), elements);
    }
  };
  EveryTarget().run([&] {
    if (GetParam() == DType::float16) return check(reference::Float16());
    check(reference::BFloat16());
  });
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTypes, testing::Values(DType::float16, DType::bfloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(KernelScale, SaturatesIntegersAndTruncatesTowardZero) {
  const std::array<int8_t, 4> small = {100, -100, 7, -7};
  std::array<int8_t, 4> scaled{};
  scale(DType::int8, scaled.data(), small.data(), {.factor = 1.5}, 4);
  EXPECT_EQ(scaled, (std::array<int8_t, 4>{127, -128, 10, -10}));
  const std::array<int64_t, 2> large = {int64_t{1} << 62, -(int64_t{1} << 62)};
  std::array<int64_t, 2> limits{};
  scale(DType::int64, limits.data(), large.data(), {.factor = 4.0}, 2);
  EXPECT_EQ(limits[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(limits[1], std::numeric_limits<int64_t>::min());
}

TEST(KernelScale, ByOneKeepsEveryBitOfLargeIntegers) {
  const int64_t value = (int64_t{1} << 62) + 1;
  int64_t result = 0;
  scale(DType::int64, &result, &value, {}, 1);
  EXPECT_EQ(result, value);
}

using CopyFunction = void (*)(void*, const void*, size_t);

void expect_every_byte_and_its_neighbours(CopyFunction copy_function, size_t bytes,
                                          size_t misalignment) {
  SCOPED_TRACE(::testing::Message() << bytes << " bytes, " << misalignment);
  Buffer from(bytes, 64 - misalignment), to(bytes + 2, misalignment);
  for (size_t i = 0; i < bytes; ++i) from.data()[i] = std::byte(i * 7 + 1);
  std::fill_n(to.data(), to.size(), std::byte{0xee});
  copy_function(to.data() + 1, from.data(), bytes);
  EXPECT_TRUE(std::equal(from.data(), from.data() + bytes, to.data() + 1));
  EXPECT_EQ(to.data()[0], std::byte{0xee});
  EXPECT_EQ(to.data()[bytes + 1], std::byte{0xee});
}

TEST(Copies, KeepEveryByteAndItsNeighbours) {
  EveryTarget().run([] {
    constexpr size_t row = kPagesAtOnce * kPageBytes;
    for (const CopyFunction function : {&copy, &copy_past_caches, &copy_from_peer})
      for (const size_t bytes :
           {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{255}, size_t{256},
            size_t{1000}, size_t{5000}, row, 2 * row + 1000})
        for (const size_t misalignment : {0, 1, 32, 63})
          expect_every_byte_and_its_neighbours(function, bytes, misalignment);
  });
}

TEST(FetchForWriting, ChangesNothing) {
  std::vector<std::byte> memory(5000, std::byte{7});
  for (const size_t bytes : {0, 1, 64, 5000}) fetch_for_writing(memory.data(), bytes);
  EXPECT_EQ(memory, std::vector<std::byte>(5000, std::byte{7}));
}

TEST(Copy, KeepsEveryByteAtEveryDistanceFromTheSource) {
  EveryTarget().run([] {
    constexpr size_t kPage = 4096, kBegin = 40;
    std::vector<std::byte> memory(4 * kPage);
    for (const size_t bytes : {2047, 2048, 2049, 2048 + 63})
      for (const size_t distance : {0, 1, 8, 24, 31, 32, 63, 64, 4095}) {
        SCOPED_TRACE(::testing::Message() << bytes << " bytes, " << distance << " behind");
        for (size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 7 + i / 256);
        std::vector<std::byte> expected = memory;
        const size_t end = kBegin + 2 * kPage + distance;
        std::copy_n(memory.begin() + kBegin, bytes, expected.begin() + static_cast<long>(end));
        kernel::copy(memory.data() + end, memory.data() + kBegin, bytes);
        EXPECT_EQ(memory, expected);
      }
  });
}

}  // namespace
}  // namespace hvd::kernel

// The reductions of several sources, on the stand-in: the same source as on a GPU. Compared with
// the kernels of the host.
#include "core/device/reduce_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/device/testing.h"
#include "core/kernel/kernel.h"

namespace hvd::device {
namespace {

using test::Gpu;

struct Case {
  ReduceOp op;
  Merge merge;
};
constexpr Case kCases[] = {{ReduceOp::sum, Merge::sum},
                           {ReduceOp::min, Merge::min},
                           {ReduceOp::max, Merge::max},
                           {ReduceOp::product, Merge::product}};
constexpr DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                            DType::int8,    DType::uint8,   DType::int32,   DType::int64};

class ReduceKernelsTest : public test::StandIn {
 protected:
  static constexpr size_t kBytes = 8192;  ///< of a source

  DevicePointer source(size_t index) const { return memory_.address() + index * kBytes; }
  std::byte* host(size_t index) { return host_.bytes().data() + index * kBytes; }

  /// Numbers around 1, so that half types do not overflow; with NaN and infinity.
  void fill(DType dtype, size_t sources) {
    std::vector<float> numbers(kBytes / element_bytes(dtype));
    for (size_t i = 0; i < sources; ++i) {
      for (float& one : numbers) one = static_cast<float>(random_() % 4096) / 1024.0f - 1.5f;
      if (i == 1) numbers[3] = std::numeric_limits<float>::quiet_NaN();
      if (i == 0) numbers[4] = std::numeric_limits<float>::infinity();
      store(dtype, host(i), numbers);
    }
  }
  void store(DType dtype, std::byte* to, const std::vector<float>& numbers) {
    if (dtype == DType::float32) {
      std::memcpy(to, numbers.data(), kBytes);
    } else if (dtype == DType::float64) {
      for (size_t i = 0; i < numbers.size(); ++i)
        reinterpret_cast<double*>(to)[i] = static_cast<double>(numbers[i]) / 3;
    } else if (dtype == DType::float16 || dtype == DType::bfloat16) {
      kernel::narrow(dtype, to, numbers.data(), numbers.size());
    } else {
      for (size_t i = 0; i < kBytes; ++i) to[i] = static_cast<std::byte>(random_());
    }
  }

  /// Reduces `count` elements of `sources` sources to the last one.
  void expect_as_on_the_host(DType dtype, const Case& one, size_t sources, size_t count) {
    fill(dtype, sources);
    copy_async(test::driver(), memory_.address(), host_.address(), sources * kBytes,
               stream_.handle());
    std::vector<DevicePointer> from;
    std::vector<const void*> on_host;
    for (size_t i = 0; i < sources; ++i) {
      from.push_back(source(i));
      on_host.push_back(host(i));
    }
    kernels_.launch({.dtype = dtype,
                     .merge = one.merge,
                     .from = from,
                     .to = source(sources - 1),
                     .count = count},
                    stream_.handle());
    copy_async(test::driver(), host_out_.address(), source(sources - 1), kBytes, stream_.handle());
    test::await([&] { return stream_.idle(); });
    kernel::reduce(one.op, dtype, host(sources - 1), on_host, count);
    EXPECT_TRUE(equals(dtype, host(sources - 1)))
        << "dtype " << static_cast<int>(dtype) << " op " << static_cast<int>(one.op) << " of "
        << sources << " x " << count;
  }
  /// NaN may have other bits.
  bool equals(DType dtype, const std::byte* expected) const {
    if (dtype != DType::float16 && dtype != DType::bfloat16)
      return dtype == DType::float32 ? equal_numbers<float>(expected)
             : dtype == DType::float64
                 ? equal_numbers<double>(expected)
                 : std::memcmp(expected, host_out_.bytes().data(), kBytes) == 0;
    std::vector<float> a(kBytes / 2), b(kBytes / 2);
    kernel::widen(dtype, a.data(), expected, a.size());
    kernel::widen(dtype, b.data(), host_out_.bytes().data(), b.size());
    return std::ranges::equal(a, b, same<float>);
  }
  template <class T>
  static bool same(T a, T b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  }
  template <class T>
  bool equal_numbers(const std::byte* expected) const {
    const auto* const a = reinterpret_cast<const T*>(expected);
    const auto* const b = reinterpret_cast<const T*>(host_out_.bytes().data());
    return std::equal(a, a + kBytes / sizeof(T), b, same<T>);
  }

  Gpu gpu_{0};
  Stream stream_{gpu_.context};
  ReduceKernels kernels_{gpu_.context};
  DeviceMemory memory_{gpu_.context, 5 * kBytes};
  PinnedMemory host_{gpu_.context, 5 * kBytes}, host_out_{gpu_.context, kBytes};
  std::mt19937 random_{1};
};

TEST_F(ReduceKernelsTest, EveryTypeAndReductionGivesTheNumbersOfTheHost) {
  for (const DType dtype : kTypes)
    for (const Case& one : kCases)
      for (const size_t sources : {1, 2, 5})
        for (const size_t count : {1, 5, 16, 100, 1000})
          expect_as_on_the_host(dtype, one, sources, count);
}

TEST_F(ReduceKernelsTest, AScaledSumIsRoundedOnce) {
  const std::vector<float> large(kBytes / 2, 40000.0f);
  for (const size_t i : {0, 1}) kernel::narrow(DType::float16, host(i), large.data(), large.size());
  copy_async(test::driver(), memory_.address(), host_.address(), 2 * kBytes, stream_.handle());
  const DevicePointer from[] = {source(0), source(1)};
  kernels_.launch({.dtype = DType::float16,
                   .scaling = {.before = 2, .divisor = 2, .after = 0.25},
                   .from = from,
                   .to = source(2),
                   .count = kBytes / 2},
                  stream_.handle());
  copy_async(test::driver(), host_out_.address(), source(2), kBytes, stream_.handle());
  test::await([&] { return stream_.idle(); });
  std::vector<float> read(kBytes / 2);
  kernel::widen(DType::float16, read.data(), host_out_.bytes().data(), read.size());
  EXPECT_THAT(read, ::testing::Each(20000.0f)) << "the sum exceeds the range of float16";
}

TEST_F(ReduceKernelsTest, TypesWithoutAKernelAreKnown) {
  for (const DType dtype : kTypes) EXPECT_TRUE(has_reduce_kernel(dtype));
  EXPECT_TRUE(has_reduce_kernel(DType::boolean));
  EXPECT_FALSE(has_reduce_kernel(DType::int16));
  EXPECT_FALSE(has_reduce_kernel(DType::uint16));
}

}  // namespace
}  // namespace hvd::device

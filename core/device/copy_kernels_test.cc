// The batched copies, on the stand-in: the same source as on a GPU. Compared with the kernels of
// the host.
#include "core/device/copy_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/device/testing.h"
#include "core/kernel/kernel.h"

namespace hvd::device {
namespace {

using test::Gpu;

class Kernels : public test::StandIn {
 protected:
  /// Fills pinned memory, copies it to the GPU, runs `launch`, and copies the result back.
  void run(const std::function<void(StreamHandle)>& launch) {
    copy_async(test::driver(), in_.address(), host_in_.address(), kBytes, stream_.handle());
    fill_async(test::driver(), out_.address(), 0xee, kBytes, stream_.handle());
    launch(stream_.handle());
    copy_async(test::driver(), host_out_.address(), out_.address(), kBytes, stream_.handle());
    test::await([&] { return stream_.idle(); });
  }
  Piece piece(size_t from, size_t to, size_t count) const {
    return {test::pointer(in_.address() + from), test::pointer(out_.address() + to), count};
  }

  static constexpr size_t kBytes = (1 << 20) + 100'000;  // more than one cut
  Gpu gpu_{0};
  Stream stream_{gpu_.context};
  CopyKernels kernels_{gpu_.context};
  DeviceMemory in_{gpu_.context, kBytes}, out_{gpu_.context, kBytes};
  PinnedMemory host_in_{gpu_.context, kBytes}, host_out_{gpu_.context, kBytes};
  std::mt19937 random_{1};
};

TEST_F(Kernels, BytesOfAnyAlignmentAreCopiedAndNoOthersWritten) {
  for (std::byte& one : host_in_.bytes()) one = static_cast<std::byte>(random_());
  constexpr size_t kRoom = 160;
  std::vector<Piece> pieces;
  std::vector<std::byte> expected(kBytes, std::byte{0xee});
  for (size_t from = 0; from < 17; ++from) {
    for (size_t to = 0; to < 17; ++to) {
      for (const size_t length : {0, 1, 3, 15, 16, 17, 33, 100}) {
        const size_t place = pieces.size() * kRoom;
        pieces.push_back(piece(place + from, place + to, length));
        std::memcpy(expected.data() + place + to, host_in_.bytes().data() + place + from, length);
      }
    }
  }
  run([&](StreamHandle stream) { kernels_.launch(CopyKind::bytes, pieces, {}, stream); });
  EXPECT_TRUE(std::ranges::equal(host_out_.bytes(), expected));
}

TEST_F(Kernels, LongPiecesAreCut) {
  for (std::byte& one : host_in_.bytes()) one = static_cast<std::byte>(random_());
  run([&](StreamHandle stream) {
    kernels_.launch(CopyKind::bytes, std::array{piece(0, 0, kBytes)}, {}, stream);
  });
  EXPECT_TRUE(std::ranges::equal(host_out_.bytes(), host_in_.bytes()));
}

/// A value of every bit pattern that matters: special ones, subnormals, and random ones.
void fill_bits(DType dtype, std::span<std::byte> bytes, std::mt19937& random) {
  const size_t element = element_bytes(dtype);
  for (size_t at = 0; at + element <= bytes.size(); at += element) {
    uint64_t bits = static_cast<uint64_t>(random()) << 32 | random();
    if (dtype == DType::float32 || dtype == DType::float64) {  // NaN payloads may differ
      const double value =
          std::ldexp(static_cast<double>(random()) - 2e9, -31 - static_cast<int>(random() % 40));
      const auto narrow = static_cast<float>(value);
      if (dtype == DType::float64) std::memcpy(&bits, &value, sizeof(value));
      if (dtype == DType::float32) std::memcpy(&bits, &narrow, sizeof(narrow));
    }
    if (dtype == DType::float16 && (bits >> 10 & 31) == 31) bits &= ~uint64_t{1 << 14};
    if (dtype == DType::bfloat16 && (bits >> 7 & 255) == 255) bits &= ~uint64_t{1 << 14};
    std::memcpy(bytes.data() + at, &bits, element);
  }
}

struct ScaleCase {
  DType from, to;
  CopyKind kind;
};

/// What the kernels of the host compute.
std::vector<std::byte> scaled_on_host(const ScaleCase& one, const std::byte* in, size_t count,
                                      const CopyScaling& by) {
  std::vector<std::byte> out(count * element_bytes(one.to));
  const kernel::Scaling scaling{by.factor, static_cast<int>(by.divisor)};
  if (one.from == one.to) {
    kernel::scale(one.from, out.data(), in, scaling, count);
    return out;
  }
  std::vector<float> wide(count);
  if (one.from == DType::float32)
    std::memcpy(wide.data(), in, count * sizeof(float));
  else
    kernel::widen(one.from, wide.data(), in, count);
  for (float& value : wide)
    value = value / static_cast<float>(by.divisor) * static_cast<float>(by.factor);
  if (one.to == DType::float32)
    std::memcpy(out.data(), wide.data(), count * sizeof(float));
  else
    kernel::narrow(one.to, out.data(), wide.data(), count);
  return out;
}

constexpr ScaleCase kScaleCases[] = {
    {DType::float32, DType::float32, CopyKind::float32},
    {DType::float64, DType::float64, CopyKind::float64},
    {DType::float16, DType::float16, CopyKind::float16},
    {DType::bfloat16, DType::bfloat16, CopyKind::bfloat16},
    {DType::float32, DType::float16, CopyKind::float32_to_float16},
    {DType::float32, DType::bfloat16, CopyKind::float32_to_bfloat16},
    {DType::float16, DType::float32, CopyKind::float16_to_float32},
    {DType::bfloat16, DType::float32, CopyKind::bfloat16_to_float32},
};

TEST_F(Kernels, ScalingGivesTheBitsOfTheHost) {
  constexpr size_t kCount = 20'000;
  for (const ScaleCase& one : kScaleCases) {
    fill_bits(one.from, host_in_.bytes(), random_);
    for (const CopyScaling& by : {CopyScaling{3, 1}, CopyScaling{1, 0.1f}, CopyScaling{7, 0.3f}}) {
      // From an aligned address, and from one that only single elements can reach.
      for (const size_t skipped : {0, 1, 3}) {
        SCOPED_TRACE(std::string(name_of(one.from)) + " to " + std::string(name_of(one.to)) +
                     ", skipped " + std::to_string(skipped));
        const size_t from = skipped * element_bytes(one.from);
        ASSERT_EQ(copy_kind(one.from, one.to, by), one.kind);
        run([&](StreamHandle stream) {
          kernels_.launch(one.kind, std::array{piece(from, 0, kCount)}, by, stream);
        });
        const auto expected = scaled_on_host(one, host_in_.bytes().data() + from, kCount, by);
        EXPECT_EQ(std::memcmp(host_out_.bytes().data(), expected.data(), expected.size()), 0);
      }
    }
  }
}

TEST_F(Kernels, LongPiecesThatAreScaledAreCut) {
  constexpr size_t kCount = kBytes / sizeof(float);
  fill_bits(DType::float32, host_in_.bytes(), random_);
  for (const ScaleCase& one : {kScaleCases[0], kScaleCases[4]}) {
    run([&](StreamHandle stream) {
      kernels_.launch(one.kind, std::array{piece(0, 0, kCount)}, {3, 1}, stream);
    });
    const auto expected = scaled_on_host(one, host_in_.bytes().data(), kCount, {3, 1});
    EXPECT_EQ(std::memcmp(host_out_.bytes().data(), expected.data(), expected.size()), 0);
  }
}

TEST_F(Kernels, AVectorHasAHeadAndATail) {
  fill_bits(DType::float16, host_in_.bytes(), random_);
  const ScaleCase half{DType::float16, DType::float16, CopyKind::float16};
  constexpr size_t kRoom = 128;
  std::vector<Piece> pieces;
  std::vector<std::byte> expected(kBytes, std::byte{0xee});
  for (size_t skipped = 0; skipped < 9; ++skipped) {
    for (size_t count = 0; count < 40; ++count) {
      const size_t begin = pieces.size() * kRoom + 2 * skipped;
      pieces.push_back(piece(begin, begin, count));
      const auto scaled = scaled_on_host(half, host_in_.bytes().data() + begin, count, {3, 1});
      std::ranges::copy(scaled, expected.begin() + static_cast<ptrdiff_t>(begin));
    }
  }
  run([&](StreamHandle stream) { kernels_.launch(CopyKind::float16, pieces, {3, 1}, stream); });
  EXPECT_TRUE(std::ranges::equal(host_out_.bytes(), expected));
}

TEST_F(Kernels, TypesWithoutAKernelAreOnlyCopied) {
  EXPECT_EQ(copy_kind(DType::int64, DType::int64, {}), CopyKind::bytes);
  EXPECT_EQ(copy_kind(DType::int64, DType::int64, {2, 1}), std::nullopt);
  EXPECT_EQ(copy_kind(DType::float16, DType::bfloat16, {}), std::nullopt);
}

TEST_F(Kernels, AnOldDriverRefusesNewerPtx) {
  const test::Variable old("FAKE_CUDA_DRIVER_VERSION", "9000");
  const CopyKernels again(gpu_.context);  // PTX 6.0 is for every driver since CUDA 9.0
  EXPECT_THAT(test::error_of([&] { const Module module(gpu_.context, ".version 8.8\n"); }),
              ::testing::HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"));
  EXPECT_THAT(test::error_of([&] { const Module module(gpu_.context, "no PTX"); }),
              ::testing::HasSubstr("CUDA_ERROR_INVALID_IMAGE (200)"));
  const Module empty(gpu_.context, ".version 6.0\n");
  EXPECT_THAT(test::error_of([&] { empty.kernel("hvd_copy"); }),
              ::testing::HasSubstr("CUDA_ERROR_NOT_FOUND (500)"));
}

TEST_F(Kernels, ALaunchWaitsForTheEventsOfItsStream) {
  EXPECT_DEATH(
      {
        const Stream other(gpu_.context);
        fill_async(test::driver(), in_.address(), 1, 64, other.handle());
        kernels_.launch(CopyKind::bytes, std::array{piece(0, 0, 64)}, {}, stream_.handle());
      },
      "hvd_copy on stream .* reads memory that cuMemsetD8Async on stream .* writes");
}

}  // namespace
}  // namespace hvd::device

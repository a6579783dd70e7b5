// Shared by the kernel tests: a loop over the SIMD targets of this CPU, buffers of any alignment,
// and test values that include special ones.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/kernel/reference.h"
#include "hwy/highway.h"

namespace hvd::kernel {

/// Runs the rest of its scope once for each SIMD target of this CPU and for the scalar one.
class EveryTarget {
 public:
  EveryTarget() : targets_(hwy::SupportedAndGeneratedTargets()) {}
  ~EveryTarget() { hwy::SetSupportedTargetsForTest(0); }

  template <class Body>
  void run(Body body) {
    for (const int64_t target : targets_) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(target);
      SCOPED_TRACE(hwy::TargetName(target));
      body();
    }
  }

 private:
  std::vector<int64_t> targets_;
};

/// A buffer whose address is `misalignment` bytes beyond a cache line.
class Buffer {
 public:
  Buffer(size_t bytes, size_t misalignment) : memory_(bytes + 3 * 64), bytes_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = 64 - address % 64 + misalignment;
  }
  std::byte* data() { return memory_.data() + begin_; }
  const std::byte* data() const { return memory_.data() + begin_; }
  size_t size() const { return bytes_; }

 private:
  ByteVector memory_;
  size_t bytes_;
  size_t begin_;
};

template <class T>
T special(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  const std::array values = {T(0),
                             T(1),
                             T(-T(1)),
                             Limits::max(),
                             Limits::min(),
                             Limits::lowest(),
                             T(-T(0)),
                             Limits::infinity(),
                             Limits::quiet_NaN(),
                             Limits::denorm_min()};
  return values[random() % values.size()];
}

template <class T>
void fill_floats(Buffer& buffer, std::mt19937_64& random) {
  for (size_t at = 0; at < buffer.size(); at += sizeof(T)) {
    const T ordinary = static_cast<T>(std::ldexp(static_cast<double>(random()) - 9e18, -60));
    const T value = random() % 16 == 0 ? special<T>(random) : ordinary;
    std::memcpy(buffer.data() + at, &value, sizeof(T));
  }
}

/// Random values, some of them special (NaN, infinities); any bits for integers and half types.
inline void fill_random(DType dtype, Buffer& buffer, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (dtype == DType::float32) return fill_floats<float>(buffer, random);
  if (dtype == DType::float64) return fill_floats<double>(buffer, random);
  const uint64_t mask = dtype == DType::boolean ? 1 : 0xff;
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = std::byte(random() & mask);
}

inline void expect_same(DType dtype, const void* actual, const void* expected, size_t elements) {
  for (size_t i = 0; i < elements; ++i)
    ASSERT_TRUE(reference::same_element(dtype, actual, expected, i)) << "element " << i;
}

}  // namespace hvd::kernel

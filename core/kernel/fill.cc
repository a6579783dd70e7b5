#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd::kernel {
namespace {

template <class Bits>
void fill(void* destination, Bits element, size_t elements) {
  auto* target = static_cast<std::byte*>(destination);
  for (size_t i = 0; i < elements; ++i)
    std::memcpy(target + i * sizeof(Bits), &element, sizeof(Bits));
}

template <class T>
T neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
    case ReduceOp::adasum:
      return T{0};
    case ReduceOp::product:
      return T{1};
    case ReduceOp::min:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::max:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  HVD_ASSERT(false);
}

/// Returns the upper half of a float, which is a bfloat16; 0, 1 and the infinities need no
/// rounding.
uint16_t neutral_bfloat16(ReduceOp op) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(neutral<float>(op)) >> 16);
}

uint16_t neutral_float16(ReduceOp op) {
  constexpr uint16_t kOne = 0x3c00, kInfinity = 0x7c00, kMinusInfinity = 0xfc00;
  const float value = neutral<float>(op);
  if (value == 0.0F) return 0;
  if (value == 1.0F) return kOne;
  return value > 0 ? kInfinity : kMinusInfinity;
}

/// The neutral element of `or` (sum and max of bool) or `and` (product and min).
uint8_t neutral_boolean(ReduceOp op) { return op == ReduceOp::min || op == ReduceOp::product; }

}  // namespace

void fill_neutral(ReduceOp op, DType dtype, void* destination, size_t elements) {
  switch (dtype) {
    case DType::uint8:
      return fill(destination, neutral<uint8_t>(op), elements);
    case DType::int8:
      return fill(destination, neutral<int8_t>(op), elements);
    case DType::uint16:
      return fill(destination, neutral<uint16_t>(op), elements);
    case DType::int16:
      return fill(destination, neutral<int16_t>(op), elements);
    case DType::int32:
      return fill(destination, neutral<int32_t>(op), elements);
    case DType::int64:
      return fill(destination, neutral<int64_t>(op), elements);
    case DType::float16:
      return fill(destination, neutral_float16(op), elements);
    case DType::float32:
      return fill(destination, neutral<float>(op), elements);
    case DType::float64:
      return fill(destination, neutral<double>(op), elements);
    case DType::boolean:
      return fill(destination, neutral_boolean(op), elements);
    case DType::bfloat16:
      return fill(destination, neutral_bfloat16(op), elements);
  }
  HVD_ASSERT(false);
}

}  // namespace hvd::kernel

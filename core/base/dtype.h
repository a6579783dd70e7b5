// Element types and reduce operations. The numbers are part of the C interface and of the wire
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvd {

enum class DType : uint8_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  boolean = 9,
  bfloat16 = 10,
};
inline constexpr DType kLastDType = DType::bfloat16;

enum class ReduceOp : uint8_t {
  average = 0,
  sum = 1,
  adasum = 2,
  min = 3,
  max = 4,
  product = 5,
};
inline constexpr ReduceOp kLastReduceOp = ReduceOp::product;

size_t element_bytes(DType dtype);
bool is_floating(DType dtype);
std::string_view name_of(DType dtype);  // "float32", as in error messages
std::string_view name_of(ReduceOp op);  // "average"

}  // namespace hvd

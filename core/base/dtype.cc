#include "core/base/dtype.h"

#include <array>

#include "core/base/assert.h"

namespace hvd {
namespace {

struct Row {
  std::string_view name;
  uint8_t bytes;
  bool floating;
};

constexpr std::array<Row, 11> kRows{{
    {"uint8", 1, false},
    {"int8", 1, false},
    {"uint16", 2, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"float16", 2, true},
    {"float32", 4, true},
    {"float64", 8, true},
    {"bool", 1, false},
    {"bfloat16", 2, true},
}};

const Row& row(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  HVD_ASSERT(index < kRows.size());
  return kRows[index];
}

}  // namespace

size_t element_bytes(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).floating; }
std::string_view name_of(DType dtype) { return row(dtype).name; }

std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 6> kNames{"average", "sum", "adasum",
                                                   "min",     "max", "product"};
  const auto index = static_cast<size_t>(op);
  HVD_ASSERT(index < kNames.size());
  return kNames[index];
}

}  // namespace hvd

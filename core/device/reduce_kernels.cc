#include "core/device/reduce_kernels.h"

#include <algorithm>
#include <optional>

#include "core/base/assert.h"
#include "core/device/kernels/reduce_ptx.h"

namespace hvd::device {
namespace {

constexpr std::array<const char*, kReduceKernels> kNames{
    "hvd_reduce_f32", "hvd_reduce_f64", "hvd_reduce_f16", "hvd_reduce_bf16",
    "hvd_reduce_i8",  "hvd_reduce_u8",  "hvd_reduce_i32", "hvd_reduce_i64"};

/// In kNames.
std::optional<size_t> index_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0;
    case DType::float64:
      return 1;
    case DType::float16:
      return 2;
    case DType::bfloat16:
      return 3;
    case DType::int8:
      return 4;
    case DType::boolean:  // 0 and 1: the smallest is `and`, the largest is `or`
    case DType::uint8:
      return 5;
    case DType::int32:
      return 6;
    case DType::int64:
      return 7;
    case DType::uint16:
    case DType::int16:
      break;
  }
  return std::nullopt;
}

constexpr unsigned kThreads = 256;
constexpr size_t kBytesPerThread = 16;
/// Enough to fill any GPU; each thread has several turns then.
constexpr size_t kMostBlocks = 1024;

}  // namespace

bool has_reduce_kernel(DType dtype) { return index_of(dtype).has_value(); }

ReduceKernels::ReduceKernels(const PrimaryContext& context) : module_(context, kReducePtx) {
  for (size_t i = 0; i < kReduceKernels; ++i) kernels_[i] = module_.kernel(kNames[i]);
}

void ReduceKernels::launch(const Task& task, StreamHandle stream) const {
  if (task.count == 0) return;
  HVD_ASSERT(!task.from.empty() && task.from.size() <= kMaxSources);
  Sources sources{};
  std::ranges::transform(task.from, sources.from, [](DevicePointer address) {
    return reinterpret_cast<const void*>(address);
  });
  sources.to = reinterpret_cast<void*>(task.to);
  sources.count = task.count;
  sources.sources = static_cast<unsigned>(task.from.size());
  sources.merge = task.merge;
  const size_t threads =
      (task.count * element_bytes(task.dtype) + kBytesPerThread - 1) / kBytesPerThread;
  const size_t blocks = std::min((threads + kThreads - 1) / kThreads, kMostBlocks);
  const Grid grid{.blocks_x = static_cast<unsigned>(blocks), .threads = kThreads};
  kernels_[index_of(task.dtype).value()].launch(grid, stream, sources, task.scaling);
}

}  // namespace hvd::device

#include "core/device/copy_kernels.h"

#include <algorithm>

#include "core/device/kernels/copy_scale_ptx.h"

namespace hvd::device {
namespace {

struct KindRow {
  const char* kernel;
  unsigned read_bytes;  ///< per element
  unsigned written_bytes;
};
/// By CopyKind.
constexpr std::array<KindRow, kCopyKinds> kKinds{{
    {"hvd_copy", 1, 1},
    {"hvd_scale_f32", 4, 4},
    {"hvd_scale_f64", 8, 8},
    {"hvd_scale_f16", 2, 2},
    {"hvd_scale_bf16", 2, 2},
    {"hvd_scale_f32_f16", 4, 2},
    {"hvd_scale_f32_bf16", 4, 2},
    {"hvd_scale_f16_f32", 2, 4},
    {"hvd_scale_bf16_f32", 2, 4},
}};
const KindRow& row_of(CopyKind kind) { return kKinds[static_cast<size_t>(kind)]; }

// A row of blocks is as long as the longest piece needs. Long pieces are cut, so that the blocks
// are not idle beside short ones.
constexpr unsigned long long kCutBytes = 1 << 20;
constexpr unsigned kThreads = 256;
constexpr unsigned kBytesPerThread = 64;  ///< four accesses of 16 bytes each

unsigned blocks_for(unsigned long long bytes) {
  constexpr unsigned long long kBytesPerBlock = kThreads * kBytesPerThread;
  return static_cast<unsigned>(std::max(1ULL, (bytes + kBytesPerBlock - 1) / kBytesPerBlock));
}

/// Cuts pieces and collects them until a launch is full.
template <class Launch>
void in_launches(std::span<const Piece> pieces, const KindRow& row, Launch launch) {
  const unsigned long long most =
      kCutBytes / std::max(row.read_bytes, row.written_bytes);  // elements
  Pieces batch;
  unsigned count = 0;
  unsigned long long longest = 0;
  const auto flush = [&] {
    if (count > 0) launch(batch, count, longest);
    count = 0;
    longest = 0;
  };
  for (const Piece& piece : pieces) {
    for (unsigned long long begin = 0; begin < piece.count; begin += most) {
      const unsigned long long length = std::min(most, piece.count - begin);
      batch.piece[count++] = {static_cast<const char*>(piece.from) + begin * row.read_bytes,
                              static_cast<char*>(piece.to) + begin * row.written_bytes, length};
      longest = std::max(longest, length);
      if (count == kMaxPieces) flush();
    }
  }
  flush();
}

}  // namespace

std::optional<CopyKind> copy_kind(DType from, DType to, const CopyScaling& scaling) {
  const bool scales = scaling.divisor != 1 || scaling.factor != 1;
  if (from == to && !scales) return CopyKind::bytes;
  if (from == DType::float32 && to == DType::float16) return CopyKind::float32_to_float16;
  if (from == DType::float32 && to == DType::bfloat16) return CopyKind::float32_to_bfloat16;
  if (from == DType::float16 && to == DType::float32) return CopyKind::float16_to_float32;
  if (from == DType::bfloat16 && to == DType::float32) return CopyKind::bfloat16_to_float32;
  if (from != to) return std::nullopt;
  switch (from) {
    case DType::float16:
      return CopyKind::float16;
    case DType::bfloat16:
      return CopyKind::bfloat16;
    case DType::float32:
      return CopyKind::float32;
    case DType::float64:
      return CopyKind::float64;
    default:
      return std::nullopt;
  }
}

CopyKernels::CopyKernels(const PrimaryContext& context) : module_(context, kCopyScalePtx) {
  for (size_t kind = 0; kind < kCopyKinds; ++kind)
    kernels_[kind] = module_.kernel(kKinds[kind].kernel);
}

void CopyKernels::launch(CopyKind kind, std::span<const Piece> pieces, const CopyScaling& scaling,
                         StreamHandle stream) const {
  in_launches(pieces, row_of(kind),
              [&](const Pieces& batch, unsigned count, unsigned long long longest) {
                launch_once(kind, batch, count, longest, scaling, stream);
              });
}

void CopyKernels::launch_once(CopyKind kind, const Pieces& pieces, unsigned count,
                              unsigned long long longest, const CopyScaling& scaling,
                              StreamHandle stream) const {
  const KindRow& row = row_of(kind);
  const Grid grid{.blocks_x = blocks_for(longest * std::max(row.read_bytes, row.written_bytes)),
                  .blocks_y = count,
                  .threads = kThreads};
  const Kernel& kernel = kernels_[static_cast<size_t>(kind)];
  if (kind == CopyKind::bytes) return kernel.launch(grid, stream, pieces);
  if (kind == CopyKind::float64)
    return kernel.launch(grid, stream, pieces, DoubleScaling{scaling.divisor, scaling.factor});
  kernel.launch(
      grid, stream, pieces,
      FloatScaling{static_cast<float>(scaling.divisor), static_cast<float>(scaling.factor)});
}

}  // namespace hvd::device

// Batched copies: every row of blocks copies one piece, optionally scaled or converted. Arithmetic
// is in float (in double for double); the result is rounded once, to nearest even.
//
// Alignment: a thread moves 16 bytes of the wider type at a time if source and destination are
// equally far from such a boundary. Otherwise it moves single elements; hvd_copy then moves 4 or 2
// bytes, if possible.
//
// Compiled to PTX (copy_scale.ptx, see tests/house/test_gpu_sources.py) and, for the stand-in driver
// of the tests, for the host. `target.h` differs.
#include "core/device/kernels/numbers.h"
#include "core/device/kernels/pieces.h"

namespace hvd::device {

HVD_DEVICE u64 address_of(const void* pointer) { return reinterpret_cast<u64>(pointer); }

/// Elements before the first one at a boundary of `bytes`.
template <class T>
HVD_DEVICE u64 elements_before_boundary(const void* begin, u64 bytes) {
  return (bytes - address_of(begin) % bytes) % bytes / sizeof(T);
}

template <class From, class To, class Scaling>
struct ScalingCopy {
  typedef typename From::Stored In;
  typedef typename To::Stored Out;
  typedef typename From::Wide Wide;
  static constexpr int kLanes = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
  typedef Vector<In, kLanes> Ins;
  typedef Vector<Out, kLanes> Outs;

  HVD_DEVICE Out scaled(In value, const Scaling& by) {
    Wide wide = From::widen(value);
    if (by.divisor != 1) wide = wide / by.divisor;
    return To::narrow(wide * by.factor);
  }

  HVD_DEVICE void single(const Piece& piece, u64 begin, u64 end, const Scaling& by) {
    const In* in = static_cast<const In*>(piece.from);
    Out* out = static_cast<Out*>(piece.to);
    for (u64 i = begin + first_index(); i < end; i += index_step()) out[i] = scaled(in[i], by);
  }

  HVD_DEVICE void run(const Piece& piece, const Scaling& by) {
    const u64 head = elements_before_boundary<In>(piece.from, sizeof(Ins));
    const u64 first_out = address_of(piece.to) + head * sizeof(Out);
    const bool congruent =
        address_of(piece.from) % sizeof(In) == 0 && first_out % sizeof(Outs) == 0;
    if (!congruent || piece.count < head + kLanes) return single(piece, 0, piece.count, by);
    const Ins* in = reinterpret_cast<const Ins*>(static_cast<const In*>(piece.from) + head);
    Outs* out = reinterpret_cast<Outs*>(static_cast<Out*>(piece.to) + head);
    const u64 vectors = (piece.count - head) / kLanes;
    for (u64 i = first_index(); i < vectors; i += index_step()) {
      const Ins read = in[i];
      Outs written;
#pragma unroll
      for (int k = 0; k < kLanes; ++k) written.lane[k] = scaled(read.lane[k], by);
      out[i] = written;
    }
    single(piece, 0, head, by);
    single(piece, head + vectors * kLanes, piece.count, by);
  }
};

/// Copies bytes [begin, end) in units, which both addresses must be aligned to.
template <class Unit>
HVD_DEVICE void copy_units(const Piece& piece, u64 begin, u64 end) {
  const Unit* in = reinterpret_cast<const Unit*>(static_cast<const char*>(piece.from) + begin);
  Unit* out = reinterpret_cast<Unit*>(static_cast<char*>(piece.to) + begin);
  const u64 count = (end - begin) / sizeof(Unit);
  for (u64 i = first_index(); i < count; i += index_step()) out[i] = in[i];
}

template <class Unit>
HVD_DEVICE bool copy_in(const Piece& piece) {
  if ((address_of(piece.from) ^ address_of(piece.to)) % sizeof(Unit) != 0) return false;
  u64 head = elements_before_boundary<char>(piece.from, sizeof(Unit));
  if (head > piece.count) head = piece.count;
  const u64 middle = (piece.count - head) / sizeof(Unit) * sizeof(Unit);
  copy_units<char>(piece, 0, head);
  copy_units<Unit>(piece, head, head + middle);
  copy_units<char>(piece, head + middle, piece.count);
  return true;
}

}  // namespace hvd::device

using namespace hvd::device;

HVD_KERNEL hvd_copy(HVD_ARGUMENT(Pieces) all) {
  const Piece& piece = all.piece[row()];
  if (copy_in<Vector<u32, 4>>(piece) || copy_in<u32>(piece) || copy_in<u16>(piece)) return;
  copy_units<char>(piece, 0, piece.count);
}

#define HVD_SCALING_KERNEL(name, From, To, Scaling)                     \
  HVD_KERNEL name(HVD_ARGUMENT(Pieces) all, HVD_ARGUMENT(Scaling) by) { \
    ScalingCopy<From, To, Scaling>::run(all.piece[row()], by);          \
  }
HVD_SCALING_KERNEL(hvd_scale_f32, Float32, Float32, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_f64, Float64, Float64, DoubleScaling)
HVD_SCALING_KERNEL(hvd_scale_f16, Float16, Float16, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_bf16, BFloat16, BFloat16, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_f32_f16, Float32, Float16, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_f32_bf16, Float32, BFloat16, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_f16_f32, Float16, Float32, FloatScaling)
HVD_SCALING_KERNEL(hvd_scale_bf16_f32, BFloat16, Float32, FloatScaling)

// What copy_scale.cu needs of a GPU, for clang without any header of a vendor. The stand-in driver
// of the tests has another header of this name, for the host.
#pragma once

#define HVD_KERNEL extern "C" __attribute__((global)) void
#define HVD_ARGUMENT(Type) const Type
#define HVD_DEVICE static inline __attribute__((device))

namespace hvd::device {

/// The number of this thread among those of its row of blocks.
HVD_DEVICE unsigned long long first_index() {
  return static_cast<unsigned long long>(__nvvm_read_ptx_sreg_ctaid_x()) *
             __nvvm_read_ptx_sreg_ntid_x() +
         __nvvm_read_ptx_sreg_tid_x();
}
/// The number of threads in a row of blocks.
HVD_DEVICE unsigned long long index_step() {
  return static_cast<unsigned long long>(__nvvm_read_ptx_sreg_nctaid_x()) *
         __nvvm_read_ptx_sreg_ntid_x();
}
/// The row of blocks, one for each piece.
HVD_DEVICE unsigned row() { return __nvvm_read_ptx_sreg_ctaid_y(); }

HVD_DEVICE float float_of_half(unsigned short bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
HVD_DEVICE unsigned short half_of_float(float value) {
  return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value));
}

}  // namespace hvd::device

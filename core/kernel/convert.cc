// Compiled once per SIMD target by foreach_target.h, which includes this file again; the part that
// does not depend on the target comes last.
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/convert.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/assert.h"
#include "core/kernel/kernel.h"
#include "core/kernel/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

template <class From, class To>
void convert(void* destination, const void* source, size_t elements) {
  const hn::ScalableTag<float> d;
  const auto* from = static_cast<const typename From::Stored*>(source);
  auto* to = static_cast<typename To::Stored*>(destination);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= elements; i += step) store<To>(d, load<From>(d, from + i), to + i);
  if (i < elements)
    store_first<To>(d, load_first<From>(d, from + i, elements - i), to + i, elements - i);
}

void widen_on_target(DType dtype, float* to, const void* from, size_t elements) {
  HVD_ASSERT(dtype == DType::float16 || dtype == DType::bfloat16);
  if (dtype == DType::float16) return convert<Float16, Plain<float>>(to, from, elements);
  convert<BFloat16, Plain<float>>(to, from, elements);
}

void narrow_on_target(DType dtype, void* to, const float* from, size_t elements) {
  HVD_ASSERT(dtype == DType::float16 || dtype == DType::bfloat16);
  if (dtype == DType::float16) return convert<Plain<float>, Float16>(to, from, elements);
  convert<Plain<float>, BFloat16>(to, from, elements);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(widen_on_target);
HWY_EXPORT(narrow_on_target);

}  // namespace

void widen(DType dtype, float* destination, const void* source, size_t elements) {
  HWY_DYNAMIC_DISPATCH(widen_on_target)(dtype, destination, source, elements);
}

void narrow(DType dtype, void* destination, const float* source, size_t elements) {
  HWY_DYNAMIC_DISPATCH(narrow_on_target)(dtype, destination, source, elements);
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE

// The cost of a bare reduction. Usage (sizes in bytes):
//   bench_kernel reduce SIZES    us to add a buffer to another one, on one core
//   bench_kernel loop BYTES      us for a minimal allreduce by two threads, which consists of
//                                copies, sums and two counters per thread; and us to copy the same
//                                size on one core
//   bench_kernel copy SIZES      us to copy by the C library and by kernel::copy, for several
//                                offsets between source and target within their pages
// Prints lines of JSON.
#include "core/kernel/kernel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/base/dtype.h"
#include "measure.h"
#include "timing.h"

namespace bench {
namespace {

constexpr std::array kTypes{hvd::DType::float32, hvd::DType::float16, hvd::DType::bfloat16};
constexpr size_t kBytesATime = size_t{16} << 20;  // one reduction alone may be shorter than a look
constexpr int kTimes = 15;                        // at the clock; the median of so many looks
constexpr size_t kSegmentBytes = size_t{128} << 10;  // as two ranks reduce large tensors
constexpr size_t kAhead = 2;                         // segments that a thread packs before it waits
constexpr size_t kSlots = 2 * kAhead;

/// Aligned like the memory that frameworks and the runtime pass to the kernels.
hvd::AlignedBuffer zeros(size_t bytes) {
  hvd::AlignedBuffer buffer(bytes);
  std::memset(buffer.data(), 0, bytes);
  return buffer;
}

/// Computes target += other.
void add(hvd::DType dtype, std::byte* target, const std::byte* other, size_t bytes) {
  const std::array<const void*, 2> sources{target, other};
  hvd::kernel::reduce(hvd::ReduceOp::sum, dtype, target, sources,
                      bytes / hvd::element_bytes(dtype));
}

void reduce(const std::string& sizes) {
  pin(0, 1);
  for (const size_t bytes : parse_sizes(sizes)) {
    const hvd::AlignedBuffer target = zeros(bytes), other = zeros(bytes);
    const int calls = static_cast<int>(std::max<size_t>(1, kBytesATime / bytes));
    for (const hvd::DType dtype : kTypes) {
      const auto times = time(kTimes, [&] {
        for (int i = 0; i < calls; ++i) add(dtype, target.data(), other.data(), bytes);
      });
      std::printf("{\"what\":\"reduce\",\"type\":\"%s\",\"bytes\":%zu,\"us\":%.4f}\n",
                  std::string(hvd::name_of(dtype)).c_str(), bytes, median(times) / calls * 1e6);
    }
  }
}

/// One of two threads that sum their tensors. Each copies its own tensor into slots that the other
/// thread reads, and adds the tensor of the other thread. The counters are never reset, so calls
/// need no barrier between them.
struct Side {
  explicit Side(size_t bytes) : tensor(zeros(bytes)), slots(zeros(kSlots * kSegmentBytes)) {}

  std::byte* slot(size_t segment) { return slots.data() + segment % kSlots * kSegmentBytes; }

  hvd::AlignedBuffer tensor, slots;
  alignas(64) std::atomic<size_t> packed{
      0};  ///< in segments; release, read by acquire; as is `reduced`
  alignas(64) std::atomic<size_t> reduced{0};
};

void await(const std::atomic<size_t>& number, size_t least) {
  static const bool alone = ::sysconf(_SC_NPROCESSORS_ONLN) < 2;
  while (number.load(std::memory_order_acquire) < least) {
    if (alone) ::sched_yield();
  }
}

void pack(Side& mine, Side& theirs, size_t segment, size_t offset) {
  if (segment >= kSlots) await(theirs.reduced, segment - kSlots + 1);
  std::memcpy(mine.slot(segment), mine.tensor.data() + offset, kSegmentBytes);
  mine.packed.store(segment + 1, std::memory_order_release);
}

void unpack(Side& mine, Side& theirs, size_t segment, size_t offset) {
  await(theirs.packed, segment + 1);
  add(hvd::DType::float32, mine.tensor.data() + offset, theirs.slot(segment), kSegmentBytes);
  mine.reduced.store(segment + 1, std::memory_order_release);
}

/// Runs a call. `number`: from 0.
void allreduce(Side& mine, Side& theirs, size_t call) {
  const size_t segments = mine.tensor.size() / kSegmentBytes, first = call * segments;
  for (size_t i = 0; i < segments + kAhead; ++i) {
    if (i < segments) pack(mine, theirs, first + i, i * kSegmentBytes);
    if (i >= kAhead) unpack(mine, theirs, first + i - kAhead, (i - kAhead) * kSegmentBytes);
  }
}

void loop(size_t bytes) {
  bytes = std::max(bytes / kSegmentBytes, size_t{1}) * kSegmentBytes;
  Side here(bytes), there(bytes);
  std::thread other([&] {
    pin(1, 2);
    for (size_t call = 0; call < kTimes; ++call) allreduce(there, here, call);
  });
  pin(0, 2);
  size_t call = 0;
  const auto times = time(kTimes, [&] { allreduce(here, there, call++); });
  other.join();
  const auto copies = time(kTimes, [&] {
    std::memcpy(here.tensor.data(), there.tensor.data(), bytes);
    asm volatile("" ::"r"(here.tensor.data()) : "memory");  // keeps the copy
  });
  std::printf("{\"what\":\"loop\",\"bytes\":%zu,\"us\":%.3f,\"copy_us\":%.3f}\n", bytes,
              median(times) * 1e6, median(copies) * 1e6);
}

void copy(const std::string& sizes) {
  constexpr size_t kPage = 4096;
  pin(0, 1);
  for (const size_t bytes : parse_sizes(sizes)) {
    const hvd::AlignedBuffer memory = zeros(2 * (bytes + 2 * kPage));
    std::byte* const source = memory.data();
    const int calls = static_cast<int>(std::max<size_t>(1, kBytesATime / bytes));
    const auto us = [&](auto function, std::byte* target) {
      const auto times = time(kTimes, [&] {
        for (int i = 0; i < calls; ++i) {
          function(target, source, bytes);
          asm volatile("" ::"r"(target) : "memory");
        }
      });
      return median(times) / calls * 1e6;
    };
    for (const size_t behind : {0, 8, 24, 31, 32, 40, 64}) {
      std::byte* const target = source + (bytes + kPage) / kPage * kPage + behind;
      std::printf(
          "{\"what\":\"copy\",\"bytes\":%zu,\"behind\":%zu,\"memcpy_us\":%.4f,\"us\":%.4f}\n",
          bytes, behind, us(std::memcpy, target), us(hvd::kernel::copy, target));
    }
  }
}

int run(const std::string& what, const std::string& sizes) {
  if (what == "reduce" && !sizes.empty()) {
    reduce(sizes);
  } else if (what == "loop" && !sizes.empty()) {
    loop(parse_sizes(sizes).front());
  } else if (what == "copy" && !sizes.empty()) {
    copy(sizes);
  } else {
    std::fprintf(stderr, "bench_kernel reduce SIZES | loop BYTES | copy SIZES\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto word = [&](int index) { return argc > index ? argv[index] : ""; };
  return bench::run(word(1), word(2));
}

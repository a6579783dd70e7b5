#include "core/base/bytes.h"
#include "core/kernel/kernel.h"

namespace hvd::kernel {

void fetch_for_writing(const void* memory, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(memory);
  constexpr int kToWrite = 1;
  for (size_t done = 0; done < bytes; done += kCacheLine) __builtin_prefetch(at + done, kToWrite);
}

}  // namespace hvd::kernel

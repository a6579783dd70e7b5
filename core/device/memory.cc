#include "core/device/memory.h"

#include <sys/resource.h>

#include "core/base/error.h"
#include "core/device/messages.h"

namespace hvd::device {
namespace {

constexpr int kKindFromAddresses = 4;  ///< hipMemcpyDefault

[[noreturn]] void fail_allocation(const PrimaryContext& context, size_t bytes) {
  const ContextScope scope(context);
  OutOfMemory facts{.wanted_bytes = bytes, .gpu = context.index()};
  context.call().memory_get_info(&facts.free_bytes, &facts.total_bytes);
  fail(Code::internal, out_of_memory_text(facts));
}

/// Returns 0 if there is too little memory.
DevicePointer allocated(const PrimaryContext& context, size_t bytes) {
  const ContextScope scope(context);
  DevicePointer address = 0;
  const Result result = context.call().memory_allocate(&address, bytes);
  if (result == kOutOfMemory) return 0;
  context.driver().check(result, "cuMemAlloc");
  return address;
}

Result pin(const PrimaryContext& context, size_t bytes, void*& data) {
  const ContextScope scope(context);
  return context.call().host_allocate(&data, bytes, kPinnedForAllContexts);
}

[[noreturn]] void fail_pinning(const PrimaryContext& context, Result result, size_t bytes) {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  fail(Code::internal, no_pinned_memory_text(bytes, known ? limit.rlim_cur : SIZE_MAX,
                                             context.driver().text_of(result)));
}

/// For destructors. Errors are ignored: at exit the driver may have shut down before.
template <class Free>
void free_in(const PrimaryContext& context, const Free& free) {
  if (context.call().context_push(context.handle()) != kSuccess) return;
  free();
  ContextHandle popped = nullptr;
  context.call().context_pop(&popped);
}

}  // namespace

DeviceMemory::DeviceMemory(const PrimaryContext& context, size_t bytes)
    : context_(context), bytes_(bytes), address_(allocated(context, bytes)) {
  if (address_ == 0) fail_allocation(context, bytes);
}

std::unique_ptr<DeviceMemory> DeviceMemory::if_available(const PrimaryContext& context,
                                                         size_t bytes) {
  const DevicePointer address = allocated(context, bytes);
  if (address == 0) return nullptr;
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(context, bytes, address));
}

DeviceMemory::~DeviceMemory() {
  free_in(context_, [this] { context_.call().memory_free(address_); });
}

IpcHandle DeviceMemory::share() const {
  const ContextScope scope(context_);
  IpcHandle handle{};
  context_.driver().check(context_.call().ipc_get_memory_handle(&handle, address_),
                          "cuIpcGetMemHandle");
  return handle;
}

ImportedMemory::ImportedMemory(const PrimaryContext& context, const IpcHandle& handle)
    : context_(context) {
  const ContextScope scope(context);
  context.driver().check(
      context.call().ipc_open_memory_handle(&address_, handle, kPeerAccessWhenNeeded),
      "cuIpcOpenMemHandle");
}

ImportedMemory::~ImportedMemory() {
  free_in(context_, [this] { context_.call().ipc_close_memory_handle(address_); });
}

PinnedMemory::PinnedMemory(const PrimaryContext& context, size_t bytes)
    : context_(context), bytes_(bytes) {
  void* data = nullptr;
  const Result result = pin(context, bytes, data);
  if (result != kSuccess) fail_pinning(context, result, bytes);
  data_ = static_cast<std::byte*>(data);
}

std::unique_ptr<PinnedMemory> PinnedMemory::if_available(const PrimaryContext& context,
                                                         size_t bytes) {
  void* data = nullptr;
  if (pin(context, bytes, data) != kSuccess) return nullptr;
  return std::unique_ptr<PinnedMemory>(new PinnedMemory(context, bytes, data));
}

PinnedMemory::~PinnedMemory() {
  free_in(context_, [this] { context_.call().host_free(data_); });
}

PinnedRange::PinnedRange(const PrimaryContext& context, std::span<std::byte> bytes)
    : context_(context), bytes_(bytes) {
  const ContextScope scope(context);
  const Result result =
      context.call().host_register(bytes.data(), bytes.size(), kPinnedForAllContexts);
  if (result != kSuccess) fail_pinning(context, result, bytes.size());
}

PinnedRange::~PinnedRange() {
  free_in(context_, [this] { context_.call().host_unregister(bytes_.data()); });
}

void copy_async(const Driver& driver, DevicePointer to, DevicePointer from, size_t bytes,
                StreamHandle stream) {
  const DriverTable& call = driver.call();
  if (call.copy_async != nullptr)
    return driver.check(call.copy_async(to, from, bytes, stream), "cuMemcpyAsync");
  driver.check(
      call.copy_async_of_kind(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                              bytes, kKindFromAddresses, stream),
      "hipMemcpyAsync");
}

void fill_async(const Driver& driver, DevicePointer to, unsigned char value, size_t bytes,
                StreamHandle stream) {
  driver.check(driver.call().fill_async(to, value, bytes, stream), "cuMemsetD8Async");
}

bool is_memory_of(const PrimaryContext& context, DevicePointer address) {
  const DriverTable& call = context.call();
  MemoryType type = MemoryType::unknown;
  int device = -1;
  if (call.pointer_get_attribute(&type, PointerAttribute::memory_type, address) != kSuccess ||
      call.pointer_get_attribute(&device, PointerAttribute::device_ordinal, address) != kSuccess)
    return false;  // the driver does not know the address
  return type == MemoryType::device && device == context.device();
}

}  // namespace hvd::device
